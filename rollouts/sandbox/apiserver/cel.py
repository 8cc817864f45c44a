"""x-kubernetes-validations: rules in the Common Expression Language, evaluated by the `cel` package.

Runs after `schema.validate` found nothing that would make evaluation meaningless. Programs are compiled once per rule
text. A rule that mentions oldSelf is a transition rule: it is skipped where there is no old value, except with
optionalOldSelf. Values that did not change were validated before and are skipped, unless a transition rule needs them.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import cel

from rollouts.sandbox.apiserver.errors import StatusCause
from rollouts.sandbox.apiserver.formats import render_json
from rollouts.sandbox.apiserver.schema import MISSING, Rule, Schema, map_key


@lru_cache(maxsize=1024)
def _compile(expression: str) -> cel.Program:
    return cel.compile(expression)


def evaluate_rules(schema: Schema, value: Any, old: Any = MISSING, path: str = "") -> Iterator[StatusCause]:
    """Find the rules that a value breaks, its parts included."""
    if not schema.has_rules or (old is not MISSING and value == old) or value is None:
        return
    for rule in schema.rules:
        finding = _evaluate(rule, value, old, path)
        if finding is not None:
            yield finding
    yield from _evaluate_parts(schema, value, old, path)


def _evaluate_parts(schema: Schema, value: Any, old: Any, path: str) -> Iterator[StatusCause]:
    if isinstance(value, dict):
        for name, member in value.items():
            child = schema.child(name)
            if child is not None and child.has_rules:
                was = old.get(name, MISSING) if isinstance(old, dict) else MISSING
                yield from evaluate_rules(child, member, was, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and schema.items is not None and schema.items.has_rules:
        before: dict[Any, Any] = {}
        if isinstance(old, list) and schema.list_type == "map":
            before = {map_key(schema, item): item for item in old}
        for index, item in enumerate(value):
            was = before.get(map_key(schema, item), MISSING) if before else MISSING
            yield from evaluate_rules(schema.items, item, was, f"{path}[{index}]")


def _evaluate(rule: Rule, value: Any, old: Any, path: str) -> StatusCause | None:
    program = _compile(rule.rule)
    names = {"self": value}
    if _mentions_old(rule.rule):
        if rule.optional_old_self:
            names["oldSelf"] = cel.OptionalValue.none() if old is MISSING else cel.OptionalValue.of(old)
        elif old is MISSING:
            return None
        else:
            names["oldSelf"] = old
    where = (path + rule.field_path if path else rule.field_path.lstrip(".")) or "<nil>"
    try:
        holds = program.execute(names)
    except (ValueError, RuntimeError, TypeError) as error:
        sentence = f'Invalid value: "{_describe_value(value)}": {error} evaluating rule: {rule.message or rule.rule}'
        return StatusCause("FieldValueInvalid", sentence, where)
    if holds is True:
        return None
    shown = (
        f"{render_json(value)}: " if rule.reason in _REASONS_WITH_VALUE and not isinstance(value, dict | list) else ""
    )
    return StatusCause(rule.reason, f"{_MESSAGE_PREFIXES[rule.reason]}{shown}{_message(rule, names)}", where)


_MESSAGE_PREFIXES = {
    "FieldValueInvalid": "Invalid value: ",
    "FieldValueForbidden": "Forbidden: ",
    "FieldValueRequired": "Required value: ",
    "FieldValueDuplicate": "Duplicate value: ",
}


_REASONS_WITH_VALUE = frozenset(("FieldValueInvalid",))  # reasons that show the value, if it is a plain one


def _message(rule: Rule, names: dict[str, Any]) -> str:
    if rule.message_expression:
        try:
            text = _compile(rule.message_expression).execute(names)
        except (ValueError, RuntimeError, TypeError):
            text = None
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text
    return rule.message or f"failed rule: {' '.join(rule.rule.split())}"


@lru_cache(maxsize=1024)
def _mentions_old(expression: str) -> bool:
    return re.search(r"\boldSelf\b", expression) is not None


def _describe_value(value: Any) -> str:
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else str(value)
