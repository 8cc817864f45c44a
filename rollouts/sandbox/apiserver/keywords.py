"""The keywords of a schema that check single values: bounds, lengths, patterns, formats.

`schema` compiles each keyword of a node once, into a function from a value and its path to a finding; a keyword
ignores values of types that it is not about.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from rollouts.sandbox.apiserver import formats
from rollouts.sandbox.apiserver.errors import StatusCause

ValueCheck = Callable[[Any, str], StatusCause | None]


def render_location(path: str) -> str:
    """Return the location of a value in the notation of findings."""
    return f"{path} in body" if path else "in body"


def _invalid(value: Any, path: str, sentence: str) -> StatusCause:
    return StatusCause("FieldValueInvalid", f"Invalid value: {formats.render_json(value)}: {sentence}", path or "<nil>")


def parse_checks(source: dict[str, Any]) -> Iterator[ValueCheck]:
    for keyword, make in _CHECKS.items():
        if keyword in source:
            yield make(source[keyword], source)


def _make_check(size: Callable[[Any], bool], sentence: str, shown: Callable[[Any], Any]) -> ValueCheck:
    """Return a check that fails when `size` does, with `shown(value)` in front of the message."""

    def check(value: Any, path: str) -> StatusCause | None:
        if not size(value):
            return None
        return _invalid(shown(value), path, f"{render_location(path)} {sentence}")

    return check


def _minimum(bound: float, source: dict[str, Any]) -> ValueCheck:
    exclusive = source.get("exclusiveMinimum", False)
    word = "greater than" if exclusive else "greater than or equal to"
    number = formats.render_json(bound)
    low = (lambda v: _is_number(v) and v <= bound) if exclusive else (lambda v: _is_number(v) and v < bound)
    return _make_check(low, f"should be {word} {number}", _identity)


def _maximum(bound: float, source: dict[str, Any]) -> ValueCheck:
    exclusive = source.get("exclusiveMaximum", False)
    word = "less than" if exclusive else "less than or equal to"
    number = formats.render_json(bound)
    high = (lambda v: _is_number(v) and v >= bound) if exclusive else (lambda v: _is_number(v) and v > bound)
    return _make_check(high, f"should be {word} {number}", _identity)


def _multiple_of(step: float, _source: dict[str, Any]) -> ValueCheck:
    return _make_check(lambda v: _is_number(v) and v % step != 0, f"should be a multiple of {step}", _identity)


def _min_length(bound: int, _source: dict[str, Any]) -> ValueCheck:
    sentence = f"should be at least {bound} chars long"
    return _make_check(lambda v: isinstance(v, str) and len(v) < bound, sentence, _identity)


def _max_length(bound: int, _source: dict[str, Any]) -> ValueCheck:
    def check(value: Any, path: str) -> StatusCause | None:
        if not isinstance(value, str) or len(value) <= bound:
            return None
        return StatusCause("FieldValueTooLong", f"Too long: may not be more than {bound} bytes", path)

    return check


def _pattern(pattern: str, _source: dict[str, Any]) -> ValueCheck:
    compiled = re.compile(pattern)
    sentence = f"should match '{pattern}'"
    return _make_check(lambda v: isinstance(v, str) and compiled.search(v) is None, sentence, _identity)


def _min_items(bound: int, _source: dict[str, Any]) -> ValueCheck:
    return _make_check(lambda v: isinstance(v, list) and len(v) < bound, f"should have at least {bound} items", len)


def _max_items(bound: int, _source: dict[str, Any]) -> ValueCheck:
    return _too_many(list, bound)


def _min_properties(bound: int, _source: dict[str, Any]) -> ValueCheck:
    sentence = f"should have at least {bound} properties"
    return _make_check(lambda v: isinstance(v, dict) and len(v) < bound, sentence, len)


def _max_properties(bound: int, _source: dict[str, Any]) -> ValueCheck:
    return _too_many(dict, bound)


def _too_many(kind: type, bound: int) -> ValueCheck:
    def check(value: Any, path: str) -> StatusCause | None:
        if not isinstance(value, kind) or len(value) <= bound:  # type: ignore[arg-type]
            return None
        message = f"Too many: {len(value)}: must have at most {bound} items"  # type: ignore[arg-type]
        return StatusCause("FieldValueTooMany", message, path)

    return check


def _format(name: str, _source: dict[str, Any]) -> ValueCheck:
    holds = formats.FORMATS.get(name)

    def check(value: Any, path: str) -> StatusCause | None:
        if holds is None or holds(value):
            return None
        if isinstance(value, int):
            sentence = f'Invalid value: "": Checked value must be of type integer with format {name} in {path}'
            return StatusCause("FieldValueInvalid", sentence, "<nil>")
        shown = formats.render_json(value)
        sentence = f"Invalid value: {shown}: {render_location(path)} must be of type {name}: {shown}"
        return StatusCause("FieldValueTypeInvalid", sentence, path)

    return check


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _identity(value: Any) -> Any:
    return value


_CHECKS: dict[str, Callable[[Any, dict[str, Any]], ValueCheck]] = {
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
