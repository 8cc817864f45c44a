"""A PodCliqueSet as values: what is wanted, parsed and defaulted.

`parsing` makes these from a manifest; everything else in the engine reads them. The invariant: every default is in
place, every number is an int, every name is known to exist; what has not passed `validation` never becomes a Workload
that is acted on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

IntOrPercent = int | str
"""A budget as written: 2 or "25%"."""


class Strategy(StrEnum):
    """How a change of the template reaches the running pods."""

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


class StartupType(StrEnum):
    """In which order the cliques of a replica start."""

    ANY_ORDER = "CliqueStartupTypeAnyOrder"
    IN_ORDER = "CliqueStartupTypeInOrder"
    EXPLICIT = "CliqueStartupTypeExplicit"


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """maxUnavailable and maxSurge of one level as written; None where left out (1 and 0 then)."""

    max_unavailable: IntOrPercent | None = None
    max_surge: IntOrPercent | None = None


@dataclass(frozen=True, slots=True)
class CliqueTemplate:
    """One role: a pod template and how many pods of it."""

    name: str
    role_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    # As written; the set's priorityClassName is put in when pods are built and hashed.
    pod_spec: Mapping[str, Any]
    replicas: int
    min_available: int
    # Names of cliques that must be up first; only looked at under Startup.EXPLICIT.
    starts_after: tuple[str, ...]
    auto_scaling: Mapping[str, Any] | None
    # None: the defaults. Only a clique in no scaling group has one.
    budget: BudgetSpec | None
    # Whether minAvailable is written; left out it is replicas, and a PodClique keeps the one that it was made with.
    # Two templates that ask for the same pods are the same template, whichever of them writes its default out.
    has_explicit_min_available: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class GroupTemplate:
    """A scaling group: cliques that are scaled, placed and replaced together."""

    name: str
    clique_names: tuple[str, ...]
    replicas: int
    min_available: int
    annotations: Mapping[str, str]
    scale_config: Mapping[str, Any] | None
    budget: BudgetSpec | None


@dataclass(frozen=True, slots=True)
class Workload:
    """A whole PodCliqueSet."""

    namespace: str
    name: str
    uid: str
    generation: int
    replicas: int
    # In force: written, or derived when left out (RollingUpdate if a component has a budget, else RollingRecreate).
    strategy: Strategy
    # Of the set level; used by ReplicaRecreate.
    budget: BudgetSpec
    cliques: tuple[CliqueTemplate, ...]
    groups: tuple[GroupTemplate, ...]
    startup_type: StartupType
    priority_class: str
    termination_delay: float  # seconds
    publish_not_ready_addresses: bool
    # The manifest this was made from, defaults put in; unknown fields and status are in here untouched.
    manifest: Mapping[str, Any]
