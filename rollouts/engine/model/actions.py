"""What a plan consists of: writes to the cluster, in order, and what to tell.

`planner` makes these, the reconciler carries them out, `simulate` carries them out on a simulated world. An action
says everything that is needed to do it once and to notice when it must not be done any more: who is deleted by uid,
what is patched by resourceVersion. A refused action is no failure: the next pass looks again.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

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
    """Create an object. Its name is a function of what is there, so a repeated create is refused, not doubled."""

    kind: Kind
    manifest: Mapping[str, Any]


@value
class Patch:
    """Change fields of an object (JSON merge patch), if it is still as it was seen."""

    kind: Kind
    name: str
    uid: str
    resource_version: str  # empty: whatever it is by now
    patch: Mapping[str, Any]
    # Fields of the patch, as paths like `spec.podSpec`, that take the place of what is there and do not merge with
    # it.
    replaced_fields: tuple[str, ...] = ()


@value
class Delete:
    """Delete an object, if it is still that one; what it owns goes with it."""

    kind: Kind
    name: str
    uid: str
    reason: str  # why, CamelCase


@value
class RemoveGate:
    """Take our scheduling gate off a pod; gates of others stay."""

    pod: str
    uid: str


@value
class WriteStatus:
    """Replace the status of an object; only planned when it differs."""

    kind: Kind
    name: str
    uid: str
    status: Mapping[str, Any]


Action = Create | Patch | Delete | RemoveGate | WriteStatus


@value
class TimelineEvent:
    """An entry of the timeline: something that this pass decided."""

    reason: str  # CamelCase: UpdateStarted, ReplicaSelected, UnitDeleted, ...
    component: str  # name of the object it is about
    text: str  # one sentence with names and numbers


@value
class Wait:
    """Why a component does not move, and what would help."""

    code: str  # of semantics 12: WaitingForReady, BudgetExhausted, SurgeUnschedulable, ...
    component: str  # name of the object that waits
    units: tuple[str, ...]  # names of the pods or replicas it waits for
    text: str  # one sentence with names and numbers
    remedies: tuple[str, ...]  # codes of the remedies that apply, e.g. SetMaxSurgeToZero
    is_problem: bool  # False for what is only information, like AwaitingDeletion
    # Of pods: for how long the longest of them has waited, and how long such a pod usually takes to become Ready. None:
    # not known. They stand in no text: a status that says them would change with every pass.
    waited_seconds: float | None = None
    usual_seconds: float | None = None


@value
class Plan:
    """One pass: what to do now, and what to say."""

    actions: tuple[Action, ...]
    timeline_events: tuple[TimelineEvent, ...]
    waits: tuple[Wait, ...]
    # Objects that carry our labels and contradict the tree; reported, never touched: name and why.
    strangers: tuple[tuple[str, str], ...]
    # When to look again though nothing happens, seconds since the epoch; None: when something changes.
    requeue_at: float | None
