"""Values: what is seen, decided and told in a pass, frozen for the type checker, which keeps all from changing them.

A pass over a thousand pods makes thousands of them. A dataclass that is frozen while the program runs as well takes six
times as long to make, which was a tenth of the time that a pass takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[_T]) -> type[_T]:
    """Make a class of values, with slots; its fields are declared like those of a dataclass."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


def fast_replace(one: _T, **changes: Any) -> _T:
    """Return a value that differs in some fields, like `dataclasses.replace` in half the time."""
    cls: type = type(one)
    other: _T = cls(*_fields_getter(cls)(one))
    for name, changed in changes.items():
        setattr(other, name, changed)
    return other


@cache
def _fields_getter(cls: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads all fields of a value of this class, in their order."""
    return attrgetter(*[one.name for one in fields(cls)])
