"""Restores hidden values when an edited manifest is sent back.

Before it: a manifest that a person read and edited, and the live object. A mark stands for the value of the same field
in the live object. The restored manifest is masked once more and must equal what was sent: if a mark was moved to a
field that would show a part of its value, the field gets a finding.

A mark is short but may stand for a long value. So the size is counted over the whole manifest, and a manifest that
would become too large gets a finding before the text is built. The hidden values of each field of the live object are
computed once.
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

_ADVICE: Final = "Write the value itself, or leave the mark in the field where it was shown."
_UNKNOWN_MARK: Final = f"This mark stands for no value that this field has in the cluster. {_ADVICE}"
_MOVED_MARK: Final = f"In this field a part of the hidden value would be visible. {_ADVICE}"
_TOO_LARGE: Final = (
    "With its hidden values restored, the manifest is larger than {kib} KiB. Leave each mark only where it was shown, "
    "and remove what is not needed."
)
_HIDDEN_FROM_READER: Final = (
    "This value was hidden because the account that read the manifest may not apply it. Write the value itself, or "
    "read the manifest with an account that may apply it."
)


def unmask_manifest(obj: Any, live: Any, workload: str, max_bytes: int) -> tuple[Any, list[Finding]]:
    """Return the manifest with its hidden values restored, and a finding for each mark that cannot be restored.

    `workload` is the key of the live object. The result is never larger than `max_bytes`.
    """
    restorer = _Restorer(make_workload_reader(workload), max_bytes)
    restored = restorer.restore(obj, live)
    if restorer.has_restored and not restorer.is_too_large:
        sent, shown = (Masker(restorer.reader).mask_value(one, "") for one in (obj, restored))
        restorer.report_moved_values(obj, sent, shown, "")
    return restored, restorer.findings


@dataclass(frozen=True, slots=True)
class _FieldPosition:
    """A field of the manifest that is restored."""

    path: str
    name: str  # of the field, or of the nearest parent with a name
    field_path: FieldPath

    def field(self, key: object) -> "_FieldPosition":
        return _FieldPosition(f"{self.path}.{key}" if self.path else str(key), str(key), (self.field_path, str(key)))

    def entry(self, index: int, entry: Any) -> "_FieldPosition":
        return _FieldPosition(f"{self.path}[{index}]", "", (self.field_path, name_of(entry)))


@dataclass(slots=True)
class _Restorer:
    """Restores the hidden values of one manifest, field by field."""

    reader: Reader
    max_bytes: int
    findings: list[Finding] = field(default_factory=list)
    has_restored: bool = False
    is_too_large: bool = False  # from then on nothing more is restored
    _bytes: int = 0  # size of the manifest so far
    # Caches by id() of values in the live object, which outlives this object.
    _hidden: dict[tuple[int, str, FieldPath], dict[str, Any]] = field(default_factory=dict)
    _by_name: dict[int, dict[str, Any]] = field(default_factory=dict)

    def report_moved_values(self, given: Any, sent: Any, shown: Any, path: str, depth: int = 0) -> None:
        """Add a finding for each mark whose restored value is masked differently from what was sent."""
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
        """Restore a whole manifest."""
        self._bytes = _count_bytes(obj)
        return self.restore_value(obj, live, _FieldPosition("", "", None))

    def restore_value(self, value: Any, live: Any, position: _FieldPosition, depth: int = 0) -> Any:
        """Restore a field, given its value in the live object."""
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
        live_member = live.get(key) if isinstance(live, Mapping) else None
        field_position = position.field(key)
        if position.name == "annotations" and isinstance(member, str):
            return self._restore_text(
                member,
                {key: live_member},
                position,
                field_position.path,
                (id(live_member), "annotations", field_position.field_path),
            )
        return self.restore_value(member, live_member, field_position, depth + 1)

    def _restore_list(self, value: Sequence[Any], live: Any, position: _FieldPosition, depth: int) -> list[Any]:
        live_entries = list(live) if isinstance(live, list | tuple) else []
        if any(isinstance(entry, str) and MARK.search(entry) for entry in value):
            # Search the whole command line: an inserted argument shifts the positions of those after it.
            hidden = self._find_hidden(live_entries, position, (id(live), position.name, position.field_path))
        else:
            hidden = {}
        by_name = self._find_entries_by_name(live, live_entries)
        restored = []
        for index, entry in enumerate(value):
            if isinstance(entry, str):
                restored.append(self._restore_marks(entry, hidden, f"{position.path}[{index}]"))
                continue
            name = name_of(entry)
            former = live_entries[index] if index < len(live_entries) else None
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
        live_entries = [] if former is None else [former]
        cache_key = (id(former), position.name, position.field_path)
        restored = {}
        for key, member in entry.items():
            if isinstance(member, str):
                restored[key] = self._restore_text(member, live_entries, position, f"{at.path}.{key}", cache_key)
            else:
                restored[key] = self._restore_member(key, member, former, at, depth + 1)
        return restored

    def _restore_text(
        self, text: str, live: Any, position: _FieldPosition, path: str, cache_key: tuple[int, str, FieldPath]
    ) -> Any:
        return (
            self._restore_marks(text, self._find_hidden(live, position, cache_key), path) if MARK.search(text) else text
        )

    def _restore_marks(self, text: str, hidden: Mapping[str, Any], path: str) -> Any:
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
        self.has_restored = True
        if text in hidden:
            return hidden[text]  # keeps its type, for example a number
        return MARK.sub(lambda found: str(hidden[found[0]]), text)

    def _find_hidden(
        self, live: Any, position: _FieldPosition, cache_key: tuple[int, str, FieldPath]
    ) -> dict[str, Any]:
        """Return the hidden values of one field of the live object, by mark."""
        if self.is_too_large:
            return {}
        if cache_key not in self._hidden:
            masker = Masker(self.reader)
            masker.mask_value(live, position.name, position.field_path)
            self._hidden[cache_key] = masker.hidden
        return self._hidden[cache_key]

    def _find_entries_by_name(self, live: Any, live_entries: list[Any]) -> dict[str, Any]:
        """Return the entries of a list by name, and by masked name, since a part of a name may be hidden."""
        if id(live) not in self._by_name:
            named = [entry for entry in live_entries if name_of(entry)]
            masker = Masker(RECORD_READER)
            shown = {masker.mask_value(name_of(entry), ""): entry for entry in named}
            self._by_name[id(live)] = shown | {name_of(entry): entry for entry in named}
        return self._by_name[id(live)]


def _count_bytes(value: Any) -> int:
    return len(render_text(value).encode(errors="replace"))
