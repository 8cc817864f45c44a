"""Documents that people send, read strictly: JSON, and YAML where it is a manifest.

Before them: whatever somebody sends to the API or types into a form. After them: plain values that every part of the
product can store and pass on. What two readers could take differently is refused, not guessed at: names that are
written twice, numbers that JSON does not have, a second document, text with NUL or halves of characters.

The invariant: reading takes time and memory in proportion to what was sent, however it is nested or refers to itself.
"""

import json
import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Never

import yaml

MAX_BODY_BYTES: Final = 1024 * 1024
"""Of a body; an API server takes objects of about one and a half times that."""

# The deepest field of a pod's spec lies about 20 levels down.
MAX_DEPTH: Final = 64
# Values and names in a YAML document: each takes its time, however short. Manifests have about one in ten characters.
_MAX_NODES: Final = MAX_BODY_BYTES // 10
# What a YAML document may grow to by its aliases, in characters.
_MAX_CHARACTERS: Final = 4 * MAX_BODY_BYTES

# What a plain word of YAML may be besides a text, as programs of Kubernetes read it: no date, and 1:30 is not 90.
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_NUMBERS: Final = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(0b[01_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F_]+)"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?([0-9][0-9_]*)?\.[0-9_]+([eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*\.([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)"
        r"|\.(nan|NaN|NAN)"
    ),
}


class UnreadableDocument(Exception):  # noqa: N818 (it reads as what happened)
    """What was sent is no document that we read."""

    def __init__(self, why: str, field: str = "", *, is_value: bool = False) -> None:
        super().__init__(why)
        self.reason = why  # a clause without a full stop
        self.field = field  # what it is about; empty: the document as a whole
        self.is_value = is_value  # it can be read, and holds a value that we do not take


def parse_json(body: bytes) -> Any:
    """Read JSON."""
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_reject_duplicate_names,
            parse_constant=_reject_constant,
            parse_float=_parse_finite_float,
        )
    except RecursionError as error:
        raise _unreadable("it nests too deeply") from error
    except ValueError as error:
        raise _unreadable(str(error)) from error
    return require_plain(value)


def parse_yaml(body: bytes) -> Any:
    """Read YAML: one document, bounded also in what its aliases make of it."""
    try:
        text = body.decode("utf-8")
        growth = _DocumentSize()
        for event in yaml.parse(text, Loader=_Loader):
            growth.add_event(event)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 (made of the safe one)
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise _unreadable(f"{error.problem or 'it is no YAML'}{where}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unreadable(str(error).partition("\n")[0]) from error
    return require_plain(value)


def find_lines(text: str, fields: Collection[str]) -> dict[str, int]:
    """Return the lines in which fields of a YAML document stand, or what they would be a part of.

    The text is one that `parse_yaml` has read, so that it is bounded; it is gone through once for all of them.

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
    """Return where the first part of a path leads: where that begins, what it is, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode) and (index := _INDEX.match(field)):
        entry = node.value[int(index[1])] if int(index[1]) < len(node.value) else None
        return entry and entry.start_mark, entry, field[index.end() :].removeprefix(".")
    if isinstance(node, yaml.MappingNode):
        # Names of labels have dots of their own: the longest that fits is meant.
        fitting = [(key, member) for key, member in node.value if _has_path_prefix(field, str(key.value))]
        if fitting:
            key, member = max(fitting, key=lambda pair: len(pair[0].value))
            return key.start_mark, member, field[len(key.value) :].removeprefix(".")
    return None, None, ""


_INDEX: Final = re.compile(r"\[(\d{1,9})\]")


def _has_path_prefix(field: str, name: str) -> bool:
    return field.startswith(name) and field[len(name) : len(name) + 1] in ("", ".", "[")


def require_plain(value: Any) -> Any:
    """Return a value that JSON can say and a database can hold; raises, with the field, for any other."""
    waiting: list[tuple[Any, str, int]] = [(value, "", 0)]
    while waiting:
        member, path, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise _unreadable(f"it nests deeper than {MAX_DEPTH} levels")
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
        raise _invalid_value(path, "this is no value that JSON can say, or too large a number")


def _require_text(text: Any, path: str) -> None:
    if not isinstance(text, str):
        raise _invalid_value(path, f"{str(text)[:40]!r} is a name here and must be a text; put it in quotes")
    if "\0" in text:
        raise _invalid_value(path, "a text may not hold NUL characters; remove them")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _invalid_value(path, "a text may not hold halves of characters (surrogates); remove them") from error


def _invalid_value(path: str, sentence: str) -> UnreadableDocument:
    return UnreadableDocument(sentence, path, is_value=True)


def _unreadable(why: str) -> UnreadableDocument:
    return UnreadableDocument(why[:300])


# ---- JSON


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    obj = dict(pairs)
    twice = _find_duplicate([name for name, _ in pairs])
    if twice is not None:
        raise ValueError(f"the name {twice[:100]!r} is written twice in one object")
    return obj


def _find_duplicate(names: Iterable[str]) -> str | None:
    """Return the first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _reject_constant(name: str) -> Never:
    raise ValueError(f"{name} is no number of JSON")


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


# ---- YAML


def _full_match(form: re.Pattern[str]) -> re.Pattern[str]:
    """Return a form that fits a whole word, or none of it."""
    return re.compile(rf"(?:{form.pattern})\Z", form.flags)


class _Loader(yaml.CSafeLoader):
    """Plain values only: no name twice, no dates, no numbers to the base of sixty."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
            twice = _find_duplicate(names)
            if twice is not None:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the name {twice[:100]!r} is written twice in one object", node.start_mark
                )
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return made


_Loader.yaml_implicit_resolvers = {
    first: [(tag, _full_match(_NUMBERS.get(tag, form))) for tag, form in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(slots=True)
class _DocumentSize:
    """How large a document becomes once its aliases are what they stand for, told event by event before it is built."""

    documents: int = 0
    nodes: int = 0
    sizes: dict[str, int] = field(default_factory=dict)  # in characters, of what has a name, with everything in it
    unfinished: list[tuple[str | None, int]] = field(default_factory=list)  # collections: name, and size so far

    def add_event(self, event: yaml.Event) -> None:
        """Take the next event in; raises ValueError when it is too much."""
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
            raise ValueError("it holds several documents; send one")
        if len(self.unfinished) > MAX_DEPTH:
            raise ValueError(f"it nests deeper than {MAX_DEPTH} levels")
        if self.nodes > _MAX_NODES:
            raise ValueError(f"it holds more than {_MAX_NODES:,} values and names")

    def _add(self, name: str | None, size: int) -> None:
        if size > _MAX_CHARACTERS:
            raise ValueError("its aliases make too much of it")
        if name:
            self.sizes[name] = size
        if self.unfinished:
            outer, so_far = self.unfinished[-1]
            self.unfinished[-1] = (outer, so_far + size)

    def _size_of(self, name: str) -> int:
        if name not in self.sizes:
            raise ValueError(f"the alias {name!r} refers to what it is a part of, or to nothing")
        return self.sizes[name]
