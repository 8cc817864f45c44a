"""Values: what is seen, decided and told in a pass, frozen for the type checker, which keeps all from changing them.

A pass over a thousand pods makes thousands of them. A dataclass that is frozen while the program runs as well takes six
times as long to make, which was a tenth of the time that a pass takes.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[_T]) -> type[_T]:
    """Make a class of values, with slots; its fields are declared like those of a dataclass."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
