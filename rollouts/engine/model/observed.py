"""What is there, as values: the objects of one workload as the mirror or a test saw them.

`planner` compares them with the `workload`; whoever reads the cluster builds them. They hold what decisions need and
nothing else (a pod here is not a pod's manifest), so a workload of a thousand pods is a few thousand small values.

Words used everywhere: an object is *leaving* when it has a deletionTimestamp; a leaving pod counts neither as there nor
as available. *Available* is a pod that is Ready and not leaving, whatever its containers went through before.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from rollouts.engine.model.values import value

TERMINAL_PHASES: Final = frozenset({"Failed", "Succeeded"})
"""Phases of pods that will never serve again."""


@value
class Pod:
    """A pod of a PodClique."""

    name: str
    uid: str
    clique: str  # name of its PodClique
    index: int  # its stable identity within the clique, from the hostname
    template_hash: str
    created: float  # seconds since the epoch
    node: str  # empty while not scheduled
    phase: str  # Pending, Running, ...
    ready: bool  # the Ready condition and nothing else
    leaving: bool
    gated: bool  # waits for its gang: our scheduling gate is still on it
    message: str = ""  # the scheduler's or kubelet's words on why it is not further
    # Not Ready though its containers have started, or after one has ended with an error; not when merely starting.
    failing: bool = False
    # When it is to be gone at the latest, its deletionTimestamp; None while nobody has deleted it.
    gone_by: float | None = None
    resource_version: str = ""  # as it was seen; empty where there is no API server to ask
    scheduled_at: float | None = None  # when it got its node; None while it has none, or where nobody noted it
    ready_since: float | None = None  # when `ready` last changed; None where nobody noted it
    restarts: int = 0  # of all its containers
    # What a container fails with while the pod is not Ready, in Kubernetes' word: CrashLoopBackOff, OOMKilled, ...
    fault: str = ""
    fault_detail: str = ""  # the image, the exit code: what stays the same while the fault lasts

    @property
    def started_at(self) -> float:
        """When it began to become Ready: with its node, or else when it was created."""
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
    """A PodClique: in no group, or of one replica of a scaling group."""

    name: str
    uid: str
    resource_version: str
    generation: int
    created: float
    template: str  # name of the clique in the set's template
    replica: int  # of the set
    group: str  # name of its PodCliqueScalingGroup; empty for a clique in no group
    group_replica: int  # -1 for a clique in no group
    template_hash: str  # its label: the template that its pods are to have
    replicas: int  # belongs to whoever scales it, once it exists
    # The replicas of the template when they were last put in force here; None when nobody noted it.
    template_replicas: int | None
    leaving: bool
    status: Mapping[str, Any]
    # What it has from its template as noted on it: `labels.tier`, `annotations.example.com/owner`.
    template_keys: tuple[str, ...] = ()
    min_available: int = 0  # as it was made with; 0 when it has none


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
    # What it has from its template as noted on it: `annotations.example.com/owner`, and a hash over all of that.
    template_keys: tuple[str, ...] = ()


@value
class Gang:
    """A PodGang."""

    name: str
    uid: str
    resource_version: str
    replica: int
    leaving: bool
    # For each of its groups, by the name of the PodClique: minReplicas and the names of the pods it refers to.
    pod_groups: Mapping[str, tuple[int, tuple[str, ...]]]
    status: Mapping[str, Any]
    priority_class: str = ""


@value
class Service:
    """The headless service of a replica of the set."""

    name: str
    uid: str
    replica: int
    leaving: bool
    publish_not_ready_addresses: bool


@value
class ReadyTime:
    """How long pods of a template usually took from their node to Ready."""

    clique: str  # name of the clique in the set's template
    template_hash: str
    seconds: float
    pods: int  # how many were measured


@value
class Observed:
    """Everything there is of one workload."""

    # Of the PodCliqueSet, as stored.
    status: Mapping[str, Any] = field(default_factory=dict)
    cliques: tuple[Clique, ...] = ()
    groups: tuple[Group, ...] = ()
    gangs: tuple[Gang, ...] = ()
    services: tuple[Service, ...] = ()
    pods: tuple[Pod, ...] = ()
    # What was noted of templates while their pods were there, oldest first: an update may replace all pods at once.
    ready_times: tuple[ReadyTime, ...] = ()
