"""What a field of a manifest may hold: the types that `schema` describes a PodCliqueSet with.

A type finds out why a value is unusable (`find_error`), and returns the usable part of any other value (`parse`). The
invariant: `parse` replaces each unusable part with None and adds one finding for it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.model.budget import parse_percentage
from rollouts.engine.model.durations import parse_duration

MAX_INT32: Final = 2**31 - 1
MAX_LABEL_LENGTH: Final = 63

LABEL_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class FieldError:
    """Why a value is unusable; in the message, {field} stands for the name of the field."""

    code: FindingCode
    message: str

    def to_finding(self, path: str) -> Finding:
        """Return the finding at a path."""
        return Finding(path, self.code, self.message.replace("{field}", last_field(path) or "the manifest"))


class FieldType:
    """What a field may hold."""

    __slots__ = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return why a value other than null is unusable; None if it is usable, at least in part."""
        raise NotImplementedError

    def parse(self, value: Any, path: str, found: list[Finding]) -> Any:
        """Return the usable part of a value without an error of its own; add findings for its other parts."""
        return value


@dataclass(frozen=True, slots=True)
class IntegerType(FieldType):
    """A whole number."""

    minimum: int
    maximum: int = MAX_INT32

    def find_error(self, value: object) -> FieldError | None:
        """Return why it is not a whole number in the range."""
        if not is_integer(value):
            return FieldError(FindingCode.WRONG_TYPE, "{field} must be a whole number")
        if value < self.minimum:
            return FieldError(FindingCode.OUT_OF_RANGE, f"{{field}} must be {self.minimum} or more; raise it")
        if value > self.maximum:
            return FieldError(FindingCode.OUT_OF_RANGE, f"{{field}} may be at most {self.maximum}; lower it")
        return None


class BooleanType(FieldType):
    """True or false."""

    __slots__ = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return why it is not a boolean."""
        return None if isinstance(value, bool) else FieldError(FindingCode.WRONG_TYPE, "{field} must be true or false")


@dataclass(frozen=True, slots=True)
class StringType(FieldType):
    """A string; one of the choices, if there are any."""

    max_length: int | None = None
    choices: tuple[str, ...] = ()
    allow_empty: bool = True

    def find_error(self, value: object) -> FieldError | None:
        """Return why it is not such a string."""
        if not isinstance(value, str):
            return FieldError(FindingCode.WRONG_TYPE, "{field} must be a string")
        if not value and not self.allow_empty:
            return FieldError(FindingCode.FIELD_MISSING, "{field} may not be empty; set it")
        if self.choices and value not in self.choices:
            return FieldError(
                FindingCode.UNKNOWN_VALUE, f"{{field}} must be one of {', '.join(filter(None, self.choices))}"
            )
        if self.max_length is not None and len(value) > self.max_length:
            return FieldError(
                FindingCode.TOO_LONG, f"{{field}} may have at most {self.max_length} characters; shorten it"
            )
        return None


@dataclass(frozen=True, slots=True)
class PatternType(FieldType):
    """A string that matches a pattern."""

    pattern: re.Pattern[str]
    error: FieldError
    max_length: int = MAX_LABEL_LENGTH

    def find_error(self, value: object) -> FieldError | None:
        """Return the error unless the value matches."""
        matches = isinstance(value, str) and len(value) <= self.max_length and self.pattern.fullmatch(value)
        return None if matches else self.error


class DurationType(FieldType):
    """A duration longer than 0."""

    __slots__ = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return why it is not such a duration."""
        if isinstance(value, str) and parse_duration(value) is not None:
            return None
        sentence = "{field} must be a duration longer than 0, such as 30m, 4h or 1h30m"
        return FieldError(FindingCode.INVALID_DURATION, sentence)


@dataclass(frozen=True, slots=True)
class IntOrPercentType(FieldType):
    """A number of units or a percentage of them."""

    max_percent: int
    error: FieldError

    def find_error(self, value: object) -> FieldError | None:
        """Return the error unless the value is such a number or percentage."""
        if isinstance(value, str):
            percent = parse_percentage(value)
            return None if percent is not None and percent <= self.max_percent else self.error
        return None if is_integer(value) and 0 <= value <= MAX_INT32 else self.error


class StringMapType(FieldType):
    """A map of strings, such as labels."""

    __slots__ = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return why it is not a map of strings."""
        if not isinstance(value, dict):
            return FieldError(FindingCode.WRONG_TYPE, "{field} must be a map of strings")
        if not all(isinstance(member, str) for member in value.values()):
            return FieldError(
                FindingCode.WRONG_TYPE, "the values of {field} must be strings; put numbers, true and false in quotes"
            )
        return None


@dataclass(frozen=True, slots=True)
class ListType(FieldType):
    """A list; with a key, a field in which no two entries may agree."""

    entry: FieldType
    min_items: int = 0
    max_items: int | None = None
    key: str | None = None

    def find_error(self, value: object) -> FieldError | None:
        """Return why it is not such a list, whatever its entries are."""
        if not isinstance(value, list):
            return FieldError(FindingCode.WRONG_TYPE, "{field} must be a list")
        if len(value) < self.min_items:
            return FieldError(FindingCode.TOO_FEW, "{field} needs at least one entry; add one")
        if self.max_items is not None and len(value) > self.max_items:
            return FieldError(FindingCode.TOO_MANY, f"{{field}} may have at most {self.max_items} entries; remove some")
        return None

    def parse(self, value: Any, path: str, found: list[Finding]) -> list[Any]:
        """Return the list with None for each unusable entry, so that the others keep their index."""
        entries = [parse_field(self.entry, entry, f"{path}[{index}]", found) for index, entry in enumerate(value)]
        seen = set()
        for index, entry in enumerate(entries):
            name = entry.get(self.key) if self.key and entry else None
            if name is not None and name in seen:
                sentence = f"two entries of {last_field(path)} have the same {self.key}; change one of them"
                found.append(Finding(f"{path}[{index}].{self.key}", FindingCode.DUPLICATE_NAME, sentence))
            seen.add(name)
        return entries


@dataclass(frozen=True, slots=True)
class ObjectType(FieldType):
    """An object with known fields; it may have others."""

    fields: Mapping[str, FieldType] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def find_error(self, value: object) -> FieldError | None:
        """Return why it is not an object, whatever its fields are."""
        return None if isinstance(value, dict) else FieldError(FindingCode.WRONG_TYPE, "{field} must be an object")

    def parse(self, value: Any, path: str, found: list[Finding]) -> dict[str, Any]:
        """Return the object with None for each unusable known field."""
        # A known field that is null counts as left out, as it does for the API server.
        usable = {name: member for name, member in value.items() if member is not None or name not in self.fields}
        for name, kind in self.fields.items():
            if name in usable or name in self.required:
                usable[name] = parse_field(kind, value.get(name), join_path(path, name), found)
        return usable


def parse_field(kind: FieldType, value: object, path: str, found: list[Finding]) -> Any:
    """Return the usable part of a field, None if there is none; add what is wrong to `found`."""
    error = (
        FieldError(FindingCode.FIELD_MISSING, "{field} is missing; add it") if value is None else kind.find_error(value)
    )
    if error is None:
        return kind.parse(value, path, found)
    found.append(error.to_finding(path))
    return None


def join_path(path: str, name: str) -> str:
    """Return the path of a field inside the value at a path."""
    return f"{path}.{name}" if path else name


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number; in Python, booleans are integers, too."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_dns_label(text: str) -> bool:
    """Whether a text is a DNS label, which pod names consist of."""
    return len(text) <= MAX_LABEL_LENGTH and LABEL_PATTERN.fullmatch(text) is not None


def last_field(path: str) -> str:
    """Return the last field of a path."""
    return path.rpartition(".")[2]
