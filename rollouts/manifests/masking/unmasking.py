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

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.manifests.masking.masker import (
    MAX_DEPTH,
    RECORD_READER,
    FieldPath,
    Masker,
    Reader,
    make_workload_reader,
    name_of,
    render_text,
)
from rollouts.manifests.masking.secret_names import NAME_VALUE_LISTS
from rollouts.manifests.masking.secret_patterns import HIDDEN, MARK

_ADVICE: Final = "write the value itself, or leave what was shown in the place where it was shown."
_UNKNOWN_MARK: Final = f"This value is hidden, and the workload has another one here; {_ADVICE}"
_MOVED_MARK: Final = f"This value is hidden, and a part of it would be shown like this; {_ADVICE}"
_TOO_LARGE: Final = (
    "With its hidden values put back, the manifest is larger than {kib} KiB; leave each hidden value only where it was "
    "shown, and take out what is not needed."
)
_HIDDEN_FROM_READER: Final = (
    "This value was hidden from the account that read the manifest, which may not apply it; write the value itself, "
    "or read the manifest with an account that may apply it."
)


def unmask_manifest(obj: Any, live: Any, workload: str, max_bytes: int) -> tuple[Any, list[Finding]]:
    """Return what somebody sends back with what was hidden put in again, and what cannot be put back.

    `workload` is the key of the workload that the live object is. Nothing larger than `most_bytes` is made.
    """
    restorer = _Restorer(make_workload_reader(workload), max_bytes)
    restored = restorer.restore(obj, live)
    if restorer.has_put_back and not restorer.is_too_large:
        sent, shown = (Masker(restorer.reader).mask_value(one, "") for one in (obj, restored))
        restorer.report_moved_values(obj, sent, shown, "")
    return restored, restorer.findings


@dataclass(frozen=True, slots=True)
class _FieldPosition:
    """A place in a manifest."""

    path: str
    name: str  # by which it hangs: that of the nearest field
    field_path: FieldPath

    def field(self, key: object) -> "_FieldPosition":
        return _FieldPosition(f"{self.path}.{key}" if self.path else str(key), str(key), (self.field_path, str(key)))

    def entry(self, index: int, entry: Any) -> "_FieldPosition":
        return _FieldPosition(f"{self.path}[{index}]", "", (self.field_path, name_of(entry)))


@dataclass(slots=True)
class _Restorer:
    """Puts hidden values back, place by place."""

    reader: Reader
    max_bytes: int
    findings: list[Finding] = field(default_factory=list)
    has_put_back: bool = False
    is_too_large: bool = False  # then nothing more is put back
    _bytes: int = 0  # what the manifest has by now
    # What is known of values of the live object, by their ids: they stay as long as this is in use.
    _hidden: dict[tuple[int, str, FieldPath], dict[str, Any]] = field(default_factory=dict)
    _by_name: dict[int, dict[str, Any]] = field(default_factory=dict)

    def report_moved_values(self, given: Any, sent: Any, shown: Any, path: str, depth: int = 0) -> None:
        """Find what would look different from what was sent, now that it was put back."""
        if depth > MAX_DEPTH:
            return
        if isinstance(given, Mapping):
            if isinstance(sent, Mapping) and isinstance(shown, Mapping):
                for key in given.keys() & sent.keys() & shown.keys():
                    below = f"{path}.{key}" if path else str(key)
                    self.report_moved_values(given[key], sent[key], shown[key], below, depth + 1)
        elif isinstance(given, list | tuple):
            if isinstance(sent, list) and isinstance(shown, list):
                for index, (one, other, third) in enumerate(zip(given, sent, shown, strict=False)):
                    self.report_moved_values(one, other, third, f"{path}[{index}]", depth + 1)
        elif isinstance(given, str) and MARK.search(given) and sent != shown:
            self.findings.append(Finding(path, FindingCode.UNKNOWN_VALUE, _MOVED_MARK))

    def restore(self, obj: Any, live: Any) -> Any:
        """Put back what is hidden in a whole manifest."""
        self._bytes = _count_bytes(obj)
        return self.restore_value(obj, live, _FieldPosition("", "", None))

    def restore_value(self, value: Any, live: Any, position: _FieldPosition, depth: int = 0) -> Any:
        """Put back what is hidden in a place, given what the live object has there."""
        if isinstance(value, str):
            return self._restore_text(
                value, live, position, position.path, (id(live), position.name, position.field_path)
            )
        if depth > MAX_DEPTH:
            return value
        if isinstance(value, Mapping):
            return {key: self._restore_member(key, member, live, position, depth) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return self._restore_list(value, live, position, depth)
        return value

    def _restore_member(self, key: Any, member: Any, live: Any, position: _FieldPosition, depth: int) -> Any:
        there = live.get(key) if isinstance(live, Mapping) else None
        place = position.field(key)
        if position.name == "annotations" and isinstance(member, str):
            return self._restore_text(
                member, {key: there}, position, place.path, (id(there), "annotations", place.field_path)
            )
        return self.restore_value(member, there, place, depth + 1)

    def _restore_list(self, value: Sequence[Any], live: Any, position: _FieldPosition, depth: int) -> list[Any]:
        there = list(live) if isinstance(live, list | tuple) else []
        if any(isinstance(entry, str) and MARK.search(entry) for entry in value):
            # Arguments are looked for in the whole command line: what is put in before one moves it on.
            hidden = self._find_hidden(there, position, (id(live), position.name, position.field_path))
        else:
            hidden = {}
        by_name = self._find_names(live, there)
        restored = []
        for index, entry in enumerate(value):
            if isinstance(entry, str):
                restored.append(self._put_back(entry, hidden, f"{position.path}[{index}]"))
                continue
            name = name_of(entry)
            former = there[index] if index < len(there) else None
            if name:
                former = by_name.get(name, by_name.get(MARK.sub(HIDDEN, name)))
            if position.name in NAME_VALUE_LISTS and isinstance(entry, Mapping):
                restored.append(
                    self._restore_pair(entry, former, position, position.entry(index, former or entry), depth)
                )
            else:
                restored.append(self.restore_value(entry, former, position.entry(index, former or entry), depth + 1))
        return restored

    def _restore_pair(
        self, entry: Mapping[Any, Any], former: Any, position: _FieldPosition, at: _FieldPosition, depth: int
    ) -> dict[Any, Any]:
        there = [] if former is None else [former]
        cache_key = (id(former), position.name, position.field_path)
        restored = {}
        for key, member in entry.items():
            if isinstance(member, str):
                restored[key] = self._restore_text(member, there, position, f"{at.path}.{key}", cache_key)
            else:
                restored[key] = self._restore_member(key, member, former, at, depth + 1)
        return restored

    def _restore_text(
        self, text: str, live: Any, position: _FieldPosition, path: str, cache_key: tuple[int, str, FieldPath]
    ) -> Any:
        return self._put_back(text, self._find_hidden(live, position, cache_key), path) if MARK.search(text) else text

    def _put_back(self, text: str, hidden: Mapping[str, Any], path: str) -> Any:
        marks = Counter(MARK.findall(text))
        if not marks or self.is_too_large:
            return text
        if not marks.keys() <= hidden.keys():
            sentence = _HIDDEN_FROM_READER if HIDDEN in marks else _UNKNOWN_MARK
            self.findings.append(Finding(path, FindingCode.UNKNOWN_VALUE, sentence))
            return text
        self._bytes += sum(count * (_count_bytes(hidden[mark]) - _count_bytes(mark)) for mark, count in marks.items())
        if self._bytes > self.max_bytes:
            self.is_too_large = True
            sentence = _TOO_LARGE.format(kib=self.max_bytes // 1024)
            self.findings.append(Finding(path, FindingCode.TOO_LONG, sentence))
            return text
        self.has_put_back = True
        if text in hidden:
            return hidden[text]  # as it was, be it a number
        return MARK.sub(lambda found: str(hidden[found[0]]), text)

    def _find_hidden(
        self, live: Any, position: _FieldPosition, cache_key: tuple[int, str, FieldPath]
    ) -> dict[str, Any]:
        """Return what is hidden in one place of the live object, by its marks."""
        if self.is_too_large:
            return {}
        if cache_key not in self._hidden:
            masker = Masker(self.reader)
            masker.mask_value(live, position.name, position.field_path)
            self._hidden[cache_key] = masker.hidden
        return self._hidden[cache_key]

    def _find_names(self, live: Any, there: list[Any]) -> dict[str, Any]:
        """Return the entries of a list by their names, and by what is shown of these: a name may be hidden in part."""
        if id(live) not in self._by_name:
            named = [entry for entry in there if name_of(entry)]
            masker = Masker(RECORD_READER)
            shown = {masker.mask_value(name_of(entry), ""): entry for entry in named}
            self._by_name[id(live)] = shown | {name_of(entry): entry for entry in named}
        return self._by_name[id(live)]


def _count_bytes(value: Any) -> int:
    return len(render_text(value).encode(errors="replace"))
