"""Label and field selectors: text → predicate.

`verbs.list` and `watch` filter with the predicates made here. A selector that cannot be read, or a field that the kind
does not offer, is rejected with the message of the real server; nothing is silently ignored.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from rollouts.sandbox.apiserver import objectmeta
from rollouts.sandbox.apiserver.errors import bad_request
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.apiserver.registry import Kind

Obj = dict[str, Any]
Predicate = Callable[[Obj], bool]
Labels = dict[str, str]
LabelTest = Callable[[Labels], bool]


def everything(_obj: Obj) -> bool:
    return True


def parse_selectors(kind: Kind, labels: str, fields: str) -> Predicate:
    """Return one predicate for both selectors of a list or watch request."""
    label_test = parse_label_selector(labels) if labels.strip() else None
    field_test = parse_field_selector(kind, fields) if fields.strip() else None
    if label_test is None:
        return field_test or everything
    by_label = label_test

    def matches(obj: Obj) -> bool:
        found = by_label(obj["metadata"].get("labels") or {})
        return found and (field_test is None or field_test(obj))

    return matches


# --- labels --------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(==|!=|=|,|\(|\)|!|<|>|[^\s=!,()<>]+)")


def parse_label_selector(text: str) -> LabelTest:
    """Read `a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    try:
        tests = list(_requirements(_Tokens(text)))
    except _SyntaxError as problem:
        raise bad_request(str(problem)) from None
    return lambda labels: all(test(labels) for test in tests)


class _SyntaxError(Exception):
    """A selector cannot be parsed; the text says why."""

    def __init__(self, problem: str, *, inside: bool = True) -> None:
        super().__init__(f"unable to parse requirement: {problem}" if inside else problem)


class _Tokens:
    """The selector's tokens, with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._at += 1
        return token


def _requirements(tokens: _Tokens) -> Iterator[LabelTest]:
    while tokens.peek():
        yield _requirement(tokens)
        following = tokens.take()
        if following not in {"", ","}:
            raise _SyntaxError(f"found '{following}', expected: ',' or 'end of string'", inside=False)
        if following == "," and not tokens.peek():
            raise _SyntaxError("found '', expected: identifier after ','", inside=False)


def _requirement(tokens: _Tokens) -> LabelTest:
    if tokens.peek() == "!":
        tokens.take()
        absent = _key(tokens)
        return lambda labels: absent not in labels
    key = _key(tokens)
    operator = tokens.peek()
    if operator in {"", ","}:
        return lambda labels: key in labels
    tokens.take()
    return _operation(key, operator, tokens)


def _operation(key: str, operator: str, tokens: _Tokens) -> LabelTest:
    if operator in {"=", "=="}:
        value = _value(key, tokens)
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        other = _value(key, tokens)
        return lambda labels: labels.get(key) != other
    if operator == "in":
        values = _values(key, tokens)
        return lambda labels: labels.get(key) in values
    if operator == "notin":
        refused = _values(key, tokens)
        return lambda labels: labels.get(key) not in refused
    if operator in {"<", ">"}:
        return _comparison(key, operator, _value(key, tokens))
    raise _SyntaxError(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")


def _comparison(key: str, operator: str, text: str) -> LabelTest:
    if not text.lstrip("-").isdigit():
        raise _SyntaxError(
            f"values[0][{key}]: Invalid value: {render_json(text)}: "
            "for 'Gt', 'Lt' operators, the value must be an integer"
        )
    bound = int(text)

    def compares(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not value.lstrip("-").isdigit():
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return compares


def _key(tokens: _Tokens) -> str:
    key = tokens.take()
    if key in {"", ",", "=", "==", "!=", "(", ")", "<", ">"}:
        raise _SyntaxError(f"found '{key}', expected: !, identifier, or 'end of string'", inside=False)
    findings = list(objectmeta.qualified_findings(key))
    if findings:
        raise _SyntaxError(f"<nil>: Invalid value: {render_json(key)}: {'; '.join(findings)}")
    return key


def _value(key: str, tokens: _Tokens) -> str:
    if tokens.peek() in {"", ","}:
        return ""
    value = tokens.take()
    if value in {"=", "==", "!=", "(", ")", "!", "<", ">"}:
        raise _SyntaxError(f"found '{value}', expected: identifier")
    findings = list(objectmeta.label_value_findings(value))
    if findings:
        raise _SyntaxError(f"values[0][{key}]: Invalid value: {render_json(value)}: {'; '.join(findings)}")
    return value


def _values(key: str, tokens: _Tokens) -> frozenset[str]:
    opening = tokens.take()
    if opening != "(":
        raise _SyntaxError(f"found '{opening}' expected: '('")
    values = [_value(key, tokens)]
    while tokens.peek() == ",":
        tokens.take()
        values.append(_value(key, tokens) if tokens.peek() != ")" else "")
    closing = tokens.take()
    if closing != ")":
        raise _SyntaxError(f"found '{closing}', expected: ',' or ')'")
    return frozenset(values)


def match_labels(selector: Obj | None, labels: Labels) -> bool:
    """Return whether a LabelSelector (matchLabels, matchExpressions) selects these labels; None selects nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches_expression(one, labels) for one in selector.get("matchExpressions") or ())


def _matches_expression(expression: Obj, labels: Labels) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


# --- fields --------------------------------------------------------------------------------------------------------

_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_INVOLVED_OBJECT_FIELDS = tuple(
    f"involvedObject.{member}"
    for member in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)
# The fields that the real server selects by, besides name and namespace.
_SELECTABLE_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "events": (*_INVOLVED_OBJECT_FIELDS, "reason", "reportingComponent", "source", "type"),
    "namespaces": ("status.phase", "name"),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
}
_TERM = re.compile(r"(?P<field>[^=!]*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)


def parse_field_selector(kind: Kind, text: str) -> Predicate:
    """Read `spec.nodeName=a,status.phase!=Running`."""
    offered = _COMMON_FIELDS + (_SELECTABLE_FIELDS.get(kind.plural, ()) if kind.builtin else ())
    tests = [_field_test(kind, term, offered) for term in re.split(r"(?<!\\),", text) if term.strip()]
    return lambda obj: all(test(obj) for test in tests)


def _field_test(kind: Kind, term: str, offered: tuple[str, ...]) -> Predicate:
    parsed = _TERM.fullmatch(term)
    if parsed is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    field, value = parsed["field"], re.sub(r"\\([\\,=])", r"\1", parsed["value"])
    if field not in offered:
        raise bad_request(f"field label not supported: {field}")
    read = _reader(field)
    if parsed["operator"] == "!=":
        return lambda obj: read(obj) != value
    return lambda obj: read(obj) == value


def _reader(field: str) -> Callable[[Obj], str]:
    members = ("metadata", "name") if field == "name" else tuple(field.split("."))

    def read(obj: Obj) -> str:
        value: Any = obj
        for member in members:
            value = value.get(member) if isinstance(value, dict) else None
        if field == "source":
            value = (value or {}).get("component")
        if value is None:
            return "false" if field in {"spec.unschedulable", "spec.hostNetwork"} else ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    return read
