"""Values that are made by the thousand: frozen for the type checker, which keeps everybody from changing them.

`views`, `units`, `steps` and `simulate` make a few for each replica, clique and pod in every pass. A dataclass that is
frozen while the program runs as well takes six times as long to make.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def value(cls: type[_T]) -> type[_T]:
    """Make a class of values; its fields are declared like those of a dataclass."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
