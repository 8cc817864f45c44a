"""The parts of a plan: writes to the cluster in order, timeline events, and waits.

`planner` makes a plan. The controller's executor sends its actions to the cluster; `simulation.cluster` applies them to
a simulated one. An action carries its preconditions, so that it takes effect once or not at all: a delete names the
uid, a patch the resourceVersion. A rejected action is no failure, because the next pass plans anew.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from rollouts.engine.model.values import value


class Kind(StrEnum):
    """The kinds of objects a plan writes."""

    SET = "PodCliqueSet"
    CLIQUE = "PodClique"
    GROUP = "PodCliqueScalingGroup"
    GANG = "PodGang"
    POD = "Pod"
    SERVICE = "Service"


@value
class Create:
    """Create an object. Its name follows from the existing objects, so a repeated create is rejected as existing."""

    kind: Kind
    manifest: Mapping[str, Any]


@value
class Patch:
    """Change fields of an object by a JSON merge patch, if it still has the resourceVersion."""

    kind: Kind
    name: str
    uid: str
    resource_version: str  # empty: any
    patch: Mapping[str, Any]
    # Paths such as `spec.podSpec`: these fields replace the stored ones and are not merged with them.
    replaced_fields: tuple[str, ...] = ()


@value
class Delete:
    """Delete an object, if it still has the uid; the garbage collector deletes the objects that it owns."""

    kind: Kind
    name: str
    uid: str
    reason: str  # CamelCase


BY_HAND: Final = "ByHand"
"""The reason of a deletion that no plan makes."""


@value
class RemoveGate:
    """Remove Grove's scheduling gate from a pod; other gates stay."""

    pod: str
    uid: str


@value
class WriteStatus:
    """Replace the status of an object; planned only when it differs from the stored one."""

    kind: Kind
    name: str
    uid: str
    status: Mapping[str, Any]


Action = Create | Patch | Delete | RemoveGate | WriteStatus


@value
class TimelineEvent:
    """An entry of the timeline: a decision of this pass."""

    reason: str  # CamelCase: UpdateStarted, ReplicaSelected, PodsCreated, ...
    component: str  # name of the object
    text: str  # one sentence with names and numbers


@value
class Wait:
    """Why a component does not move, and which remedies would help."""

    code: str  # `docs/semantics.md` 12: WaitingForReady, BudgetExhausted, SurgeUnschedulable, ...
    component: str  # name of the object that waits
    units: tuple[str, ...]  # names of the pods or replicas that it waits for, or that wait for something else
    text: str  # one sentence with names and numbers
    remedies: tuple[str, ...]  # codes of the remedies that apply, e.g. SetMaxSurgeToZero
    is_problem: bool  # False for information such as AwaitingDeletion
    # Of pods: how long the oldest of them has waited, and how long such a pod usually takes to become Ready; None:
    # unknown. The text does not contain them, because a status with them would change in every pass.
    waited_seconds: float | None = None
    usual_seconds: float | None = None
    blocked_by: tuple[str, ...] = ()  # names of the replicas that have to be updated or available first


@value
class Plan:
    """The result of one pass: actions, timeline events, waits."""

    actions: tuple[Action, ...]
    timeline_events: tuple[TimelineEvent, ...]
    waits: tuple[Wait, ...]
    # Objects that have the labels of the workload and no place in it: name and reason. Reported, never changed.
    strangers: tuple[tuple[str, str], ...]
    # When the next pass is due if no object changes, in seconds since the epoch; None: no earlier than a change.
    requeue_at: float | None
