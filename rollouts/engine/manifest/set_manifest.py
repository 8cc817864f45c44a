"""The fields of a PodCliqueSet for the rules: usable values, each with its path.

Made from the result of `schema`; read by `references` and `validation`. A value is the written or default value if it
is usable, and None if it is missing or unusable. So a rule that compares two values skips None, and a rule about
missing fields asks `is_absent`: an unusable value has its finding already.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rollouts.engine.manifest.findings import Finding, FindingCode
from rollouts.engine.model.values import value


@value
class FieldValue:
    """A value and its path; a missing field has the value None."""

    value: Any
    path: str
    is_invalid: bool = False  # the written value is unusable, or that of a field around it

    @property
    def is_absent(self) -> bool:
        """Whether the field is missing."""
        return self.value is None and not self.is_invalid

    def __getitem__(self, name: str) -> "FieldValue":
        """Return a field of this object."""
        fields = self.value if isinstance(self.value, Mapping) else {}
        written = fields.get(name)
        is_wrong = self.is_invalid or (name in fields and written is None)
        return FieldValue(written, f"{self.path}.{name}" if self.path else name, is_wrong)

    def __iter__(self) -> Iterator["FieldValue"]:
        """Yield the usable entries of this list."""
        for index, entry in enumerate(self.value if isinstance(self.value, list) else ()):
            if entry is not None:
                yield FieldValue(entry, f"{self.path}[{index}]")

    def make_finding(self, code: FindingCode, message: str) -> Finding:
        """Return a finding about this field."""
        return Finding(self.path, code, message)


@dataclass(frozen=True)
class SetManifest:
    """The parts of a PodCliqueSet that the rules read."""

    usable: Mapping[str, Any]
    without_min_available: frozenset[str] = frozenset()  # the cliques that leave minAvailable out, by name

    @cached_property
    def root(self) -> FieldValue:
        """The whole manifest."""
        return FieldValue(self.usable, "")

    @cached_property
    def spec(self) -> FieldValue:
        """The spec."""
        return self.root["spec"]

    @cached_property
    def strategy(self) -> FieldValue:
        """The update strategy."""
        return self.spec["updateStrategy"]

    @cached_property
    def template(self) -> FieldValue:
        """The template of a replica."""
        return self.spec["template"]

    @cached_property
    def name(self) -> str | None:
        """The name of the set."""
        name: str | None = self.root["metadata"]["name"].value
        return name

    @cached_property
    def cliques(self) -> tuple[FieldValue, ...]:
        """The cliques that are objects."""
        return tuple(self.template["cliques"])

    @cached_property
    def groups(self) -> tuple[FieldValue, ...]:
        """The scaling groups that are objects."""
        return tuple(self.template["podCliqueScalingGroups"])

    @cached_property
    def clique_names(self) -> frozenset[str] | None:
        """The names of all cliques; None if one of them is unusable."""
        return _collect_names(self.template["cliques"])

    @cached_property
    def group_names(self) -> frozenset[str] | None:
        """The names of all scaling groups; None if one of them is unusable."""
        return _collect_names(self.template["podCliqueScalingGroups"])

    @cached_property
    def member_names(self) -> frozenset[str]:
        """The names of the cliques in scaling groups."""
        return frozenset(name.value for group in self.groups for name in group["cliqueNames"])

    @cached_property
    def standalone(self) -> tuple[FieldValue, ...]:
        """The named cliques in no scaling group."""
        named = (clique for clique in self.cliques if clique["name"].value is not None)
        return tuple(clique for clique in named if clique["name"].value not in self.member_names)


def _collect_names(entries: FieldValue) -> frozenset[str] | None:
    if entries.is_invalid:
        return None
    written = entries.value or []
    names = [entry["name"].value for entry in entries if entry["name"].value is not None]
    return frozenset(names) if len(names) == len(written) else None
