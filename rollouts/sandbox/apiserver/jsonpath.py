"""The part of JSONPath that printer columns use: members, indices, wildcards and equality filters.

`tables` compiles each column's path once. Reads `.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`,
`.spec.template['a.b/c']`, `.items[0]`, `.items[*].name`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

PathStep = Callable[[Any], Iterator[Any]]
JsonPath = Callable[[Any], list[Any]]

_STEP_PATTERN = re.compile(
    r"\.(?P<member>[^.\[\\]*(?:\\.[^.\[\\]*)*)"
    r"|\['(?P<quoted>[^']*)'\]"
    r"|\[(?P<index>-?\d+)\]"
    r"|\[(?P<all>\*)\]"
    r"""|\[\?\(@\.(?P<key>[\w.]+)\s*==\s*(?P<value>"[^"]*"|'[^']*'|[\w.-]+)\)\]"""
)


def parse_jsonpath(text: str) -> JsonPath:
    """Compile a path into a function from an object to the values it selects."""
    steps = list(_parse_steps(text.strip("{}")))

    def select(obj: Any) -> list[Any]:
        found = [obj]
        for step in steps:
            found = [value for one in found for value in step(one)]
        return found

    return select


def _parse_steps(text: str) -> Iterator[PathStep]:
    at = 0
    while at < len(text):
        found = _STEP_PATTERN.match(text, at)
        if found is None:
            raise ValueError(f"cannot read the path {text!r} at {text[at:]!r}")
        at = found.end()
        if found["member"] == "":
            continue  # a dot in front of a bracket
        yield _parse_step(found)


def _parse_step(found: re.Match[str]) -> PathStep:
    if found["index"] is not None:
        return _item(int(found["index"]))
    if found["all"] is not None or found["member"] == "*":
        return _all_items
    if found["key"] is not None:
        return _where(found["key"].split("."), found["value"].strip("'\""))
    name = found["quoted"] if found["quoted"] is not None else found["member"].replace("\\.", ".")
    return _member(name)


def _member(name: str) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _item(index: int) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _all_items(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _where(members: list[str], wanted: str) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found = item
            for member in members:
                found = found.get(member) if isinstance(found, dict) else None
            if found is not None and _text(found) == wanted:
                yield item

    return step


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
