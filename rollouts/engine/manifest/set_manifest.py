"""A PodCliqueSet as the rules look at it: usable values, each with the path to it.

Made from what `schema` returns; read by `references` and `validation`. A value is what was written (or defaulted) if it
is usable by itself, and None if it is absent or wrong. So a rule that compares two values holds its peace when it
meets None, and a rule about what is left out asks whether it `is_absent`: what is wrong has been found already.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.model.values import value


@value
class FieldValue:
    """A value and where it stands; what is not there is a place too, with the value None."""

    value: Any
    path: str
    is_invalid: bool = False  # something is written here, or around it, that cannot be used

    @property
    def is_absent(self) -> bool:
        """Whether nothing is written here."""
        return self.value is None and not self.is_invalid

    def __getitem__(self, name: str) -> "FieldValue":
        """Return the place of a field."""
        fields = self.value if isinstance(self.value, Mapping) else {}
        written = fields.get(name)
        is_wrong = self.is_invalid or (name in fields and written is None)
        return FieldValue(written, f"{self.path}.{name}" if self.path else name, is_wrong)

    def __iter__(self) -> Iterator["FieldValue"]:
        """Go through the usable entries of a list."""
        for index, entry in enumerate(self.value if isinstance(self.value, list) else ()):
            if entry is not None:
                yield FieldValue(entry, f"{self.path}[{index}]")

    def make_finding(self, code: FindingCode, message: str) -> Finding:
        """Return a finding about this place."""
        return Finding(self.path, code, message)


@dataclass(frozen=True)
class SetManifest:
    """The parts of a PodCliqueSet that rules speak of."""

    usable: Mapping[str, Any]
    without_min_available: frozenset[str] = frozenset()  # the cliques that leave minAvailable out, by name

    @cached_property
    def root(self) -> FieldValue:
        """The whole of it."""
        return FieldValue(self.usable, "")

    @cached_property
    def spec(self) -> FieldValue:
        """What is wanted."""
        return self.root["spec"]

    @cached_property
    def strategy(self) -> FieldValue:
        """How the set is updated."""
        return self.spec["updateStrategy"]

    @cached_property
    def template(self) -> FieldValue:
        """What each replica consists of."""
        return self.spec["template"]

    @cached_property
    def name(self) -> str | None:
        """The name of the set."""
        name: str | None = self.root["metadata"]["name"].value
        return name

    @cached_property
    def cliques(self) -> tuple[FieldValue, ...]:
        """The cliques that are objects at all."""
        return tuple(self.template["cliques"])

    @cached_property
    def groups(self) -> tuple[FieldValue, ...]:
        """The scaling groups that are objects at all."""
        return tuple(self.template["podCliqueScalingGroups"])

    @cached_property
    def clique_names(self) -> frozenset[str] | None:
        """The names of all cliques; None where one of them cannot be told."""
        return _collect_names(self.template["cliques"])

    @cached_property
    def group_names(self) -> frozenset[str] | None:
        """The names of all scaling groups; None where one of them cannot be told."""
        return _collect_names(self.template["podCliqueScalingGroups"])

    @cached_property
    def member_names(self) -> frozenset[str]:
        """The names of cliques that are in a scaling group."""
        return frozenset(name.value for group in self.groups for name in group["cliqueNames"])

    @cached_property
    def standalone(self) -> tuple[FieldValue, ...]:
        """The cliques with a name that are in no scaling group."""
        named = (clique for clique in self.cliques if clique["name"].value is not None)
        return tuple(clique for clique in named if clique["name"].value not in self.member_names)


def _collect_names(entries: FieldValue) -> frozenset[str] | None:
    if entries.is_invalid:
        return None
    written = entries.value or []
    names = [entry["name"].value for entry in entries if entry["name"].value is not None]
    return frozenset(names) if len(names) == len(written) else None
