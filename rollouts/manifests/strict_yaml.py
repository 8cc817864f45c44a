"""A strict parser for documents that people send: JSON, and YAML for manifests.

Before it: the body of an API request, or the text of a form. After it: plain values that every part of the product can
store and pass on. Input that two parsers could understand differently is rejected: duplicate keys, numbers that JSON
does not have, a second YAML document, strings with NUL or unpaired surrogates.

The invariant: parsing takes time and memory in proportion to the size of the document, however deeply it is nested and
whatever its aliases refer to.
"""

import json
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Never

import yaml

MAX_BODY_BYTES: Final = 1024 * 1024
"""The longest body; an API server accepts objects of about 1.5 times that size."""

# The deepest field of a pod's spec lies about 20 levels down.
MAX_DEPTH: Final = 64
# Values and keys in a YAML document: each takes time, however short. Manifests have about one in ten characters.
_MAX_NODES: Final = MAX_BODY_BYTES // 10
# The size in characters to which the aliases of a YAML document may expand.
_MAX_MIB: Final = 4
_MAX_CHARACTERS: Final = _MAX_MIB * 1024 * 1024

# What an unquoted YAML scalar may be besides a string, as Kubernetes reads it: not a date, and 1:30 is not 90.
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_NUMBERS: Final = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(0b[01_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F_]+)"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?([0-9][0-9_]*)?\.[0-9_]+([eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*\.([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)"
        r"|\.(nan|NaN|NAN)"
    ),
}


class UnreadableDocument(Exception):  # noqa: N818 (it reads as what happened)
    """The document cannot be parsed, or holds a value that is not allowed."""

    def __init__(self, why: str, field: str = "", *, is_value: bool = False) -> None:
        super().__init__(why)
        self.reason = why  # a clause without a full stop
        self.field = field  # path of the value; empty: the document as a whole
        self.is_value = is_value  # the document can be parsed, but this value is not allowed


def parse_json(body: bytes) -> Any:
    """Parse JSON."""
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_reject_duplicate_names,
            parse_constant=_reject_constant,
            parse_float=_parse_finite_float,
        )
    except RecursionError as error:
        raise _unreadable("it is nested too deeply") from error
    except ValueError as error:
        raise _unreadable(str(error)) from error
    return require_plain(value)


def parse_yaml(body: bytes) -> Any:
    """Parse one YAML document; raises before its aliases expand to too much."""
    try:
        text = body.decode("utf-8")
        growth = _DocumentSize()
        for event in yaml.parse(text, Loader=_Loader):
            growth.add_event(event)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 (a subclass of the safe loader)
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise _unreadable(f"{error.problem or 'it is not valid YAML'}{where}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unreadable(str(error).partition("\n")[0]) from error
    return require_plain(value)


def find_lines(text: str, fields: Collection[str]) -> dict[str, int]:
    """Return the line of each field in a YAML document, or of the nearest parent that the document has.

    `parse_yaml` must have accepted the text, so its size is bounded. It is parsed once for all fields.

    >>> text = "spec:\\n  cliques:\\n  - name: a\\n  - name: b\\n    replicas: 1\\nlabels: {app.io/name: x}\\n"
    >>> find_lines(text, ["spec.cliques[1].replicas", "spec.cliques[1].image"])
    {'spec.cliques[1].replicas': 5, 'spec.cliques[1].image': 4}
    >>> find_lines(text, ["labels.app.io/name", "status"])
    {'labels.app.io/name': 6}
    """
    if not fields:
        return {}
    try:
        root = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError):
        return {}
    found = {field: _find_line(root, field) for field in fields}
    return {field: line for field, line in found.items() if line is not None}


def _find_line(node: yaml.Node | None, field: str) -> int | None:
    line = None
    while node is not None and field:
        mark, node, field = _step_into(node, field)
        line = line if mark is None else mark.line + 1
    return line


def _step_into(node: yaml.Node, field: str) -> tuple[yaml.Mark | None, yaml.Node | None, str]:
    """Follow the first part of a path: return the position and node that it leads to, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode) and (index := _INDEX.match(field)):
        entry = node.value[int(index[1])] if int(index[1]) < len(node.value) else None
        return entry and entry.start_mark, entry, field[index.end() :].removeprefix(".")
    if isinstance(node, yaml.MappingNode):
        # Label keys contain dots: the longest key that matches is meant.
        fitting = [(key, member) for key, member in node.value if _has_path_prefix(field, str(key.value))]
        if fitting:
            key, member = max(fitting, key=lambda pair: len(pair[0].value))
            return key.start_mark, member, field[len(key.value) :].removeprefix(".")
    return None, None, ""


_INDEX: Final = re.compile(r"\[(\d{1,9})\]")


def _has_path_prefix(field: str, name: str) -> bool:
    return field.startswith(name) and field[len(name) : len(name) + 1] in ("", ".", "[")


def require_plain(value: Any) -> Any:
    """Return a value if JSON can represent it and a database can store it; otherwise raise with the field."""
    waiting: list[tuple[Any, str, int]] = [(value, "", 0)]
    while waiting:
        member, path, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _unreadable(f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(member, dict):
            for name in member:
                _require_text(name, path)
            waiting += [(inner, f"{path}.{name}".removeprefix("."), depth + 1) for name, inner in member.items()]
        elif isinstance(member, list):
            waiting += [(inner, f"{path}[{index}]", depth + 1) for index, inner in enumerate(member)]
        else:
            _require_scalar(member, path)
    return value


def _require_scalar(value: Any, path: str) -> None:
    if isinstance(value, str):
        _require_text(value, path)
        return
    is_number = isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise _invalid_value(path, "JSON cannot represent this value, or the number is too large")


def _require_text(text: Any, path: str) -> None:
    if not isinstance(text, str):
        raise _invalid_value(path, f"the key {str(text)[:40]!r} must be a string; put it in quotes")
    if "\0" in text:
        raise _invalid_value(path, "a string must not contain NUL characters; remove them")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _invalid_value(path, "a string must not contain unpaired surrogates; remove them") from error


def _invalid_value(path: str, sentence: str) -> UnreadableDocument:
    return UnreadableDocument(sentence, path, is_value=True)


def _unreadable(why: str) -> UnreadableDocument:
    return UnreadableDocument(why[:300])


# ---- JSON


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    obj = dict(pairs)
    duplicate = _find_duplicate([name for name, _ in pairs])
    if duplicate is not None:
        raise ValueError(f"the key {duplicate[:100]!r} appears twice in one object")
    return obj


def _find_duplicate(names: Iterable[str]) -> str | None:
    """Return the first name that appears again."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _reject_constant(name: str) -> Never:
    raise ValueError(f"{name} is not a JSON number")


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


# ---- YAML


def _full_match(form: re.Pattern[str]) -> re.Pattern[str]:
    """Return a pattern that matches only whole scalars."""
    return re.compile(rf"(?:{form.pattern})\Z", form.flags)


class _Loader(yaml.CSafeLoader):
    """Loads plain values only: no duplicate keys, no dates, no sexagesimal numbers."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
            duplicate = _find_duplicate(names)
            if duplicate is not None:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {duplicate[:100]!r} appears twice in one object", node.start_mark
                )
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return made


_Loader.yaml_implicit_resolvers = {
    first: [(tag, _full_match(_NUMBERS.get(tag, form))) for tag, form in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(slots=True)
class _DocumentSize:
    """The size of a document after its aliases are expanded, counted from parser events before it is built."""

    documents: int = 0
    nodes: int = 0
    sizes: dict[str, int] = field(default_factory=dict)  # characters of each anchored node, with all that it contains
    unfinished: list[tuple[str | None, int]] = field(default_factory=list)  # open collections: anchor, and size so far

    def add_event(self, event: yaml.Event) -> None:
        """Count an event; raises ValueError if the document is too large."""
        self.nodes += isinstance(event, yaml.NodeEvent)
        match event:
            case yaml.DocumentStartEvent():
                self.documents += 1
            case yaml.CollectionStartEvent():
                self.unfinished.append((event.anchor, 1))
            case yaml.CollectionEndEvent():
                self._add(*self.unfinished.pop())
            case yaml.ScalarEvent():
                self._add(event.anchor, len(event.value) + 1)
            case yaml.AliasEvent():
                self._add(None, self._size_of(event.anchor or ""))
        if self.documents > 1:
            raise ValueError("it contains several documents; send one")
        if len(self.unfinished) > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
        if self.nodes > _MAX_NODES:
            raise ValueError(f"it contains more than {_MAX_NODES:,} values and keys")

    def _add(self, name: str | None, size: int) -> None:
        if size > _MAX_CHARACTERS:
            raise ValueError(f"its YAML aliases expand to more than {_MAX_MIB} MiB")
        if name:
            self.sizes[name] = size
        if self.unfinished:
            outer, so_far = self.unfinished[-1]
            self.unfinished[-1] = (outer, so_far + size)

    def _size_of(self, name: str) -> int:
        if name not in self.sizes:
            raise ValueError(f"the alias {name!r} refers to a node that contains it, or to no anchor")
        return self.sizes[name]
