"""The keywords of a schema that judge single values: bounds, lengths, patterns, formats.

`schema` compiles each keyword of a node into a function from a value and its path to a finding, once; a keyword that
does not concern a value's type says nothing about it.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from rollouts.sandbox.apiserver import formats
from rollouts.sandbox.apiserver.errors import Cause

Check = Callable[[Any, str], Cause | None]


def named(path: str) -> str:
    """A value's place as findings name it."""
    return f"{path} in body" if path else "in body"


def _invalid(value: Any, path: str, sentence: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {formats.render(value)}: {sentence}", path or "<nil>")


def parse_checks(source: dict[str, Any]) -> Iterator[Check]:
    for keyword, make in _CHECKS.items():
        if keyword in source:
            yield make(source[keyword], source)


def _sized(size: Callable[[Any], bool], sentence: str, shown: Callable[[Any], Any]) -> Check:
    """A check that refuses when `size` does, showing `shown(value)` in front of the sentence."""

    def check(value: Any, path: str) -> Cause | None:
        if not size(value):
            return None
        return _invalid(shown(value), path, f"{named(path)} {sentence}")

    return check


def _minimum(bound: float, source: dict[str, Any]) -> Check:
    exclusive = source.get("exclusiveMinimum", False)
    word = "greater than" if exclusive else "greater than or equal to"
    number = formats.render(bound)
    low = (lambda v: _number(v) and v <= bound) if exclusive else (lambda v: _number(v) and v < bound)
    return _sized(low, f"should be {word} {number}", _itself)


def _maximum(bound: float, source: dict[str, Any]) -> Check:
    exclusive = source.get("exclusiveMaximum", False)
    word = "less than" if exclusive else "less than or equal to"
    number = formats.render(bound)
    high = (lambda v: _number(v) and v >= bound) if exclusive else (lambda v: _number(v) and v > bound)
    return _sized(high, f"should be {word} {number}", _itself)


def _multiple_of(step: float, _source: dict[str, Any]) -> Check:
    return _sized(lambda v: _number(v) and v % step != 0, f"should be a multiple of {step}", _itself)


def _min_length(bound: int, _source: dict[str, Any]) -> Check:
    sentence = f"should be at least {bound} chars long"
    return _sized(lambda v: isinstance(v, str) and len(v) < bound, sentence, _itself)


def _max_length(bound: int, _source: dict[str, Any]) -> Check:
    def check(value: Any, path: str) -> Cause | None:
        if not isinstance(value, str) or len(value) <= bound:
            return None
        return Cause("FieldValueTooLong", f"Too long: may not be more than {bound} bytes", path)

    return check


def _pattern(pattern: str, _source: dict[str, Any]) -> Check:
    compiled = re.compile(pattern)
    sentence = f"should match '{pattern}'"
    return _sized(lambda v: isinstance(v, str) and compiled.search(v) is None, sentence, _itself)


def _min_items(bound: int, _source: dict[str, Any]) -> Check:
    return _sized(lambda v: isinstance(v, list) and len(v) < bound, f"should have at least {bound} items", len)


def _max_items(bound: int, _source: dict[str, Any]) -> Check:
    return _too_many(list, bound)


def _min_properties(bound: int, _source: dict[str, Any]) -> Check:
    sentence = f"should have at least {bound} properties"
    return _sized(lambda v: isinstance(v, dict) and len(v) < bound, sentence, len)


def _max_properties(bound: int, _source: dict[str, Any]) -> Check:
    return _too_many(dict, bound)


def _too_many(kind: type, bound: int) -> Check:
    def check(value: Any, path: str) -> Cause | None:
        if not isinstance(value, kind) or len(value) <= bound:  # type: ignore[arg-type]
            return None
        message = f"Too many: {len(value)}: must have at most {bound} items"  # type: ignore[arg-type]
        return Cause("FieldValueTooMany", message, path)

    return check


def _format(name: str, _source: dict[str, Any]) -> Check:
    holds = formats.FORMATS.get(name)

    def check(value: Any, path: str) -> Cause | None:
        if holds is None or holds(value):
            return None
        if isinstance(value, int):
            sentence = f'Invalid value: "": Checked value must be of type integer with format {name} in {path}'
            return Cause("FieldValueInvalid", sentence, "<nil>")
        shown = formats.render(value)
        sentence = f"Invalid value: {shown}: {named(path)} must be of type {name}: {shown}"
        return Cause("FieldValueTypeInvalid", sentence, path)

    return check


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _itself(value: Any) -> Any:
    return value


_CHECKS: dict[str, Callable[[Any, dict[str, Any]], Check]] = {
    "format": _format,
    "minimum": _minimum,
    "maximum": _maximum,
    "multipleOf": _multiple_of,
    "minLength": _min_length,
    "maxLength": _max_length,
    "pattern": _pattern,
    "minItems": _min_items,
    "maxItems": _max_items,
    "minProperties": _min_properties,
    "maxProperties": _max_properties,
}
