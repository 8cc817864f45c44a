"""The observed objects of one workload, as values.

The mirror and the simulation build them; `planner` compares them with the `workload`. They hold only what decisions
need, so a workload of a thousand pods is a few thousand small values.

`leaving` means terminating: the object has a deletionTimestamp. Which pods are live and available is decided here, in
`Pod.is_live` and `Pod.available`; `tree.availability` decides it for PodCliques and replicas (`docs/semantics.md` 1).
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from rollouts.engine.model.values import value

TERMINAL_PHASES: Final = frozenset({"Failed", "Succeeded"})
"""Phases of pods that have ended and will never serve again."""


@value
class Pod:
    """A pod of a PodClique."""

    name: str
    uid: str
    clique: str  # name of its PodClique
    index: int  # its stable identity within the PodClique, from the hostname
    template_hash: str
    created: float  # seconds since the epoch
    node: str  # empty: not scheduled
    phase: str  # Pending, Running, ...
    ready: bool  # the Ready condition and nothing else
    leaving: bool
    gated: bool  # still has Grove's scheduling gate
    message: str = ""  # why it does not proceed, from the scheduler or the kubelet
    # Not Ready although its containers have started, or after one ended with an error; False while it is starting.
    failing: bool = False
    # Its deletionTimestamp: when it should be gone at the latest; None: not deleted.
    gone_by: float | None = None
    resource_version: str = ""  # empty in a simulation
    scheduled_at: float | None = None  # when it got its node; None: no node, or unknown
    ready_since: float | None = None  # when `ready` last changed; None: unknown
    restarts: int = 0  # of all its containers
    # The fault of a container while the pod is not Ready: CrashLoopBackOff, OOMKilled, ...
    fault: str = ""
    fault_detail: str = ""  # the image or exit code, which stays the same while the fault lasts

    @property
    def started_at(self) -> float:
        """When it began to start: when it got its node, or else when it was created."""
        return self.created if self.scheduled_at is None else self.scheduled_at

    @property
    def is_live(self) -> bool:
        """Whether it neither terminates nor has ended; nothing else counts as a pod of its clique."""
        return not self.leaving and self.phase not in TERMINAL_PHASES

    @property
    def available(self) -> bool:
        """Whether it serves: live and Ready."""
        return self.ready and self.is_live

    @property
    def scheduled(self) -> bool:
        """Whether it is live and has a node."""
        return bool(self.node) and self.is_live


@value
class Clique:
    """A PodClique: standalone, or in one replica of a scaling group."""

    name: str
    uid: str
    resource_version: str
    generation: int
    created: float
    template: str  # name of the clique in the set's template
    replica: int  # of the set
    group: str  # name of its PodCliqueScalingGroup; empty: standalone
    group_replica: int  # -1: standalone
    template_hash: str  # its label: the template that its new pods get
    replicas: int  # the live value, which users and autoscalers change
    # The replicas of the template that were last applied; None: not recorded.
    template_replicas: int | None
    leaving: bool
    status: Mapping[str, Any]
    # The labels and annotations from its template, as recorded on it: `labels.tier`, `annotations.example.com/owner`.
    template_keys: tuple[str, ...] = ()
    min_available: int = 0  # the minimum that it was created with; 0: none


@value
class Group:
    """A PodCliqueScalingGroup."""

    name: str
    uid: str
    resource_version: str
    generation: int
    created: float
    template: str
    replica: int
    replicas: int
    template_replicas: int | None
    leaving: bool
    status: Mapping[str, Any]
    # The annotations from its template, as recorded on it, and a hash over them.
    template_keys: tuple[str, ...] = ()


@value
class Gang:
    """A PodGang."""

    name: str
    uid: str
    resource_version: str
    replica: int
    leaving: bool
    # By the name of the PodClique: minReplicas, and the names of the pods that it lists.
    pod_groups: Mapping[str, tuple[int, tuple[str, ...]]]
    status: Mapping[str, Any]
    priority_class: str = ""
    scheduler: str = ""  # of its label; empty: an earlier version has not set it


@value
class Service:
    """The headless Service of a replica of the set."""

    name: str
    uid: str
    replica: int
    leaving: bool
    publish_not_ready_addresses: bool


@value
class ReadyTime:
    """How long pods of a template usually take from their node to Ready."""

    clique: str  # name of the clique in the set's template
    template_hash: str
    seconds: float
    pods: int  # how many were measured


@value
class Observed:
    """All observed objects of one workload."""

    # The stored status of the PodCliqueSet.
    status: Mapping[str, Any] = field(default_factory=dict)
    cliques: tuple[Clique, ...] = ()
    groups: tuple[Group, ...] = ()
    gangs: tuple[Gang, ...] = ()
    services: tuple[Service, ...] = ()
    pods: tuple[Pod, ...] = ()
    # Recorded while the pods of a template existed, oldest first: an update may replace all pods at once.
    ready_times: tuple[ReadyTime, ...] = ()
