"""The way back: what was hidden in a manifest is put in again when the manifest returns.

Before it: a manifest as a person read and edited it, and the live object. A mark stands for what the live object has in
the same field of the same workload. What was put back is masked once more, and must look as it did when it was sent:
a mark that was moved to where a part of its value would be shown is refused, with the field that it is in.

A mark is short and may stand for a long value. So what is put back is counted over the whole manifest, and a manifest
that would become too large is refused before the text that is too much is built. What a value of the live object hides
is looked for once, however often it is asked for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rollouts.engine.manifest.findings import Code, Finding
from rollouts.manifests.masking.masker import DEEPEST, RECORD, Masker, Reader, Way, name_of, reader_of, render
from rollouts.manifests.masking.secret_names import PAIRS
from rollouts.manifests.masking.secret_patterns import HIDDEN, MARK

_LEAVE: Final = "write the value itself, or leave what was shown in the place where it was shown."
_NOT_HERE: Final = f"This value is hidden, and the workload has another one here; {_LEAVE}"
_MOVED: Final = f"This value is hidden, and a part of it would be shown like this; {_LEAVE}"
_TOO_LARGE: Final = (
    "With its hidden values put back, the manifest is larger than {kib} KiB; leave each hidden value only where it was "
    "shown, and take out what is not needed."
)
_READ_BY_OTHERS: Final = (
    "This value was hidden from the account that read the manifest, which may not apply it; write the value itself, "
    "or read the manifest with an account that may apply it."
)


def unmask_manifest(obj: Any, live: Any, workload: str, most_bytes: int) -> tuple[Any, list[Finding]]:
    """Return what somebody sends back with what was hidden put in again, and what cannot be put back.

    `workload` is the key of the workload that the live object is. Nothing larger than `most_bytes` is made.
    """
    restorer = _Restorer(reader_of(workload), most_bytes)
    restored = restorer.restore(obj, live)
    if restorer.has_put_back and not restorer.is_too_large:
        sent, shown = (Masker(restorer.reader).value(one, "") for one in (obj, restored))
        restorer.look_again(obj, sent, shown, "")
    return restored, restorer.findings


@dataclass(frozen=True, slots=True)
class _Where:
    """A place in a manifest."""

    path: str
    name: str  # by which it hangs: that of the nearest field
    way: Way

    def field(self, key: object) -> "_Where":
        return _Where(f"{self.path}.{key}" if self.path else str(key), str(key), (self.way, str(key)))

    def entry(self, index: int, entry: Any) -> "_Where":
        return _Where(f"{self.path}[{index}]", "", (self.way, name_of(entry)))


@dataclass(slots=True)
class _Restorer:
    """Puts hidden values back, place by place."""

    reader: Reader
    most_bytes: int
    findings: list[Finding] = field(default_factory=list)
    has_put_back: bool = False
    is_too_large: bool = False  # then nothing more is put back
    _bytes: int = 0  # what the manifest has by now
    # What is known of values of the live object, by their ids: they stay as long as this is in use.
    _hidden: dict[tuple[int, str, Way], dict[str, Any]] = field(default_factory=dict)
    _by_name: dict[int, dict[str, Any]] = field(default_factory=dict)

    def look_again(self, given: Any, sent: Any, shown: Any, path: str, depth: int = 0) -> None:
        """Find what would look different from what was sent, now that it was put back."""
        if depth > DEEPEST:
            return
        if isinstance(given, Mapping):
            if isinstance(sent, Mapping) and isinstance(shown, Mapping):
                for key in given.keys() & sent.keys() & shown.keys():
                    below = f"{path}.{key}" if path else str(key)
                    self.look_again(given[key], sent[key], shown[key], below, depth + 1)
        elif isinstance(given, list | tuple):
            if isinstance(sent, list) and isinstance(shown, list):
                for index, (one, other, third) in enumerate(zip(given, sent, shown, strict=False)):
                    self.look_again(one, other, third, f"{path}[{index}]", depth + 1)
        elif isinstance(given, str) and MARK.search(given) and sent != shown:
            self.findings.append(Finding(path, Code.UNKNOWN_VALUE, _MOVED))

    def restore(self, obj: Any, live: Any) -> Any:
        """Put back what is hidden in a whole manifest."""
        self._bytes = _count_bytes(obj)
        return self.value(obj, live, _Where("", "", None))

    def value(self, value: Any, live: Any, where: _Where, depth: int = 0) -> Any:
        """Put back what is hidden in a place, given what the live object has there."""
        if isinstance(value, str):
            return self._text(value, live, where, where.path, (id(live), where.name, where.way))
        if depth > DEEPEST:
            return value
        if isinstance(value, Mapping):
            return {key: self._member(key, member, live, where, depth) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return self._list(value, live, where, depth)
        return value

    def _member(self, key: Any, member: Any, live: Any, where: _Where, depth: int) -> Any:
        there = live.get(key) if isinstance(live, Mapping) else None
        place = where.field(key)
        if where.name == "annotations" and isinstance(member, str):
            return self._text(member, {key: there}, where, place.path, (id(there), "annotations", place.way))
        return self.value(member, there, place, depth + 1)

    def _list(self, value: Sequence[Any], live: Any, where: _Where, depth: int) -> list[Any]:
        there = list(live) if isinstance(live, list | tuple) else []
        if any(isinstance(entry, str) and MARK.search(entry) for entry in value):
            # Arguments are looked for in the whole command line: what is put in before one moves it on.
            hidden = self._find_hidden(there, where, (id(live), where.name, where.way))
        else:
            hidden = {}
        by_name = self._find_names(live, there)
        restored = []
        for index, entry in enumerate(value):
            if isinstance(entry, str):
                restored.append(self._put_back(entry, hidden, f"{where.path}[{index}]"))
                continue
            name = name_of(entry)
            former = there[index] if index < len(there) else None
            if name:
                former = by_name.get(name, by_name.get(MARK.sub(HIDDEN, name)))
            if where.name in PAIRS and isinstance(entry, Mapping):
                restored.append(self._pair(entry, former, where, where.entry(index, former or entry), depth))
            else:
                restored.append(self.value(entry, former, where.entry(index, former or entry), depth + 1))
        return restored

    def _pair(self, entry: Mapping[Any, Any], former: Any, where: _Where, at: _Where, depth: int) -> dict[Any, Any]:
        there = [] if former is None else [former]
        known_as = (id(former), where.name, where.way)
        restored = {}
        for key, member in entry.items():
            if isinstance(member, str):
                restored[key] = self._text(member, there, where, f"{at.path}.{key}", known_as)
            else:
                restored[key] = self._member(key, member, former, at, depth + 1)
        return restored

    def _text(self, text: str, live: Any, where: _Where, path: str, known_as: tuple[int, str, Way]) -> Any:
        return self._put_back(text, self._find_hidden(live, where, known_as), path) if MARK.search(text) else text

    def _put_back(self, text: str, hidden: Mapping[str, Any], path: str) -> Any:
        marks = Counter(MARK.findall(text))
        if not marks or self.is_too_large:
            return text
        if not marks.keys() <= hidden.keys():
            sentence = _READ_BY_OTHERS if HIDDEN in marks else _NOT_HERE
            self.findings.append(Finding(path, Code.UNKNOWN_VALUE, sentence))
            return text
        self._bytes += sum(count * (_count_bytes(hidden[mark]) - _count_bytes(mark)) for mark, count in marks.items())
        if self._bytes > self.most_bytes:
            self.is_too_large = True
            sentence = _TOO_LARGE.format(kib=self.most_bytes // 1024)
            self.findings.append(Finding(path, Code.TOO_LONG, sentence))
            return text
        self.has_put_back = True
        if text in hidden:
            return hidden[text]  # as it was, be it a number
        return MARK.sub(lambda found: str(hidden[found[0]]), text)

    def _find_hidden(self, live: Any, where: _Where, known_as: tuple[int, str, Way]) -> dict[str, Any]:
        """Return what is hidden in one place of the live object, by its marks."""
        if self.is_too_large:
            return {}
        if known_as not in self._hidden:
            masker = Masker(self.reader)
            masker.value(live, where.name, where.way)
            self._hidden[known_as] = masker.hidden
        return self._hidden[known_as]

    def _find_names(self, live: Any, there: list[Any]) -> dict[str, Any]:
        """Return the entries of a list by their names, and by what is shown of these: a name may be hidden in part."""
        if id(live) not in self._by_name:
            named = [entry for entry in there if name_of(entry)]
            masker = Masker(RECORD)
            shown = {masker.value(name_of(entry), ""): entry for entry in named}
            self._by_name[id(live)] = shown | {name_of(entry): entry for entry in named}
        return self._by_name[id(live)]


def _count_bytes(value: Any) -> int:
    return len(render(value).encode(errors="replace"))
