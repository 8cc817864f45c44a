"""A PodCliqueSet as values: the desired state, parsed and with its defaults.

`parsing` makes these from a manifest; the rest of the engine reads them. The invariants: every default is in place,
every number is an int, and every name that is referred to exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

IntOrPercent = int | str
"""A budget as written: 2 or "25%"."""


class Strategy(StrEnum):
    """How a change of a template reaches the running pods (`docs/semantics.md` 5)."""

    ROLLING_RECREATE = "RollingRecreate"
    ROLLING_UPDATE = "RollingUpdate"
    REPLICA_RECREATE = "ReplicaRecreate"
    ON_DELETE = "OnDelete"


SET_BUDGET_STRATEGY: Final = Strategy.REPLICA_RECREATE
"""The one strategy that uses maxUnavailable and maxSurge of the set."""

COMPONENT_BUDGET_STRATEGY: Final = Strategy.ROLLING_UPDATE
"""The one strategy that uses maxUnavailable and maxSurge of cliques and scaling groups."""

BUDGET_STRATEGIES: Final = frozenset({SET_BUDGET_STRATEGY, COMPONENT_BUDGET_STRATEGY})
"""The strategies that use a written budget; the others replace one unit at a time, or none."""


REVISIONS_KEPT: Final = 20
"""How many revisions of a workload are kept, whatever its revisionHistoryLimit."""


class StartupType(StrEnum):
    """In which order the cliques of a replica start."""

    ANY_ORDER = "CliqueStartupTypeAnyOrder"
    IN_ORDER = "CliqueStartupTypeInOrder"
    EXPLICIT = "CliqueStartupTypeExplicit"


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """maxUnavailable and maxSurge of one level as written; None: left out, so 1 and 0."""

    max_unavailable: IntOrPercent | None = None
    max_surge: IntOrPercent | None = None


@dataclass(frozen=True, slots=True)
class CliqueTemplate:
    """One role: a pod template and its number of pods."""

    name: str
    role_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    # As written; pods and hashes also get the set's priorityClassName.
    pod_spec: Mapping[str, Any]
    replicas: int
    min_available: int
    # Names of cliques that must be up first; used only with StartupType.EXPLICIT.
    starts_after: tuple[str, ...]
    auto_scaling: Mapping[str, Any] | None
    # None: the defaults. Only a standalone clique has one.
    budget: BudgetSpec | None
    # Whether minAvailable is written. If it is left out, it equals replicas, and a PodClique keeps the minimum that it
    # was created with. Not compared: templates that ask for the same pods are equal.
    has_explicit_min_available: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class GroupTemplate:
    """A scaling group: cliques that are scaled, scheduled and replaced together."""

    name: str
    clique_names: tuple[str, ...]
    replicas: int
    min_available: int
    annotations: Mapping[str, str]
    budget: BudgetSpec | None


@dataclass(frozen=True, slots=True)
class Workload:
    """A whole PodCliqueSet."""

    namespace: str
    name: str
    uid: str
    generation: int
    replicas: int
    # As written; if left out, RollingUpdate if a component has an updateStrategy, else RollingRecreate.
    strategy: Strategy
    # Of the replicas of the set; only SET_BUDGET_STRATEGY uses it.
    budget: BudgetSpec
    cliques: tuple[CliqueTemplate, ...]
    groups: tuple[GroupTemplate, ...]
    startup_type: StartupType
    priority_class: str
    termination_delay: float  # seconds
    publish_not_ready_addresses: bool
    # The manifest with its defaults; unknown fields and the status are unchanged in it.
    manifest: Mapping[str, Any]
