"""Every sentence that a pass can say: waits, conditions and timeline events, as templates with named fields.

`diagnosis`, `status_conditions`, `plan_builder` and `planner` fill the fields. A field that names or counts things is a
`Subject`: `{pods:is|are}` chooses the verb that fits it, so `{pods} {pods:is|are} not Ready` becomes `a is not Ready`
or `a and b are not Ready`. The titles and buttons of pages stand at the end.

The invariant: a sentence holds nothing that changes while the wait lasts, such as its age, because a status that
changes is written with every pass.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from rollouts.engine.model import conditions
from rollouts.engine.model.container_faults import ContainerFault
from rollouts.engine.plan.remedies import Remedy
from rollouts.engine.plan.wait_codes import WaitCode
from rollouts.engine.rollout.roller import Reason

# ---- waits: what a component waits for, and until when

PODS_NOT_READY: Final = "{pods} of {clique} {pods:is|are} not Ready ({available} of {wanted} are)"
PODS_UNSCHEDULED: Final = "{pods} of {clique} {pods:has|have} no node"
PODS_UNSCHEDULED_BESIDE_SURGE: Final = (
    "{pods} of {clique} {pods:has|have} no node; surge {surge} {surge:occupies|occupy} nodes until every original is"
    " available"
)
PODS_NOT_IN_GANG: Final = (
    "{pods} of {clique} {pods:keeps its scheduling gate|keep their scheduling gates} until"
    " {pods:its PodGang lists it|their PodGang lists them}"
)
PODS_BEHIND_BASE_GANG: Final = (
    "{pods} of {clique} {pods:keeps its scheduling gate|keep their scheduling gates} until the base gang {gang} is"
    " scheduled ({short} has {scheduled} of {minimum} pods on nodes)"
)
# Of a pod: nothing, or Surge. What the scheduler or the kubelet says about it follows after a colon.
SURGE_PREFIX: Final = "Surge "

CONTAINER_FAULTS: Final[Mapping[str, str]] = {
    ContainerFault.IMAGE: "{pods} of {clique} cannot pull {pods:its|their} image",
    ContainerFault.CONFIG: "{pods} of {clique} cannot create {pods:its container|their containers}",
    ContainerFault.MEMORY: "{pods} of {clique} {pods:runs out of memory and is|run out of memory and are} killed",
    ContainerFault.CRASH: "{pods} of {clique} {pods:crash-loops|crash-loop}",
}

WAITING_FOR_TERMINATION: Final = "{component} waits until {objects} {objects:is|are} gone."
BUDGET_EXHAUSTED: Final = (
    "{units} of {component} {units:waits|wait}: {available} {available:is|are} available"
    " and maxUnavailable is {max_unavailable}{surge}."
)
BUDGET_EXHAUSTED_SURGE: Final = ", and no more surge is available (maxSurge {max_surge})"
REPLICA_UPDATED_FIRST: Final = (
    "{replicas} {replicas:waits|wait} until {selected} is updated: replicas are updated one at a time."
)
# What the replica that is down waits for follows after a semicolon.
REPLICA_DOWN_FIRST: Final = (
    "{replicas} {replicas:waits|wait} until {down} {down:is|are} available:"
    " an update takes down only one replica at a time"
)
TOO_FEW_AVAILABLE: Final = (
    "{replicas} {replicas:is|are} not available. An update may make at most {max_unavailable} of {wanted} replicas"
    " unavailable at a time."
)
AWAITING_DELETION: Final = (
    "{outdated} of {live} pods of {clique} {outdated:runs|run} an older template."
    " The replacement of a deleted pod gets the current one."
)
SCALED_BELOW_MINIMUM: Final = (
    "{component} is scaled to {units} and its minAvailable is {minimum}: scale it to {minimum} or more."
)

# ---- what an update waits for as a whole, as UpdateStuck and the list of workloads say it

CAUSES: Final[Mapping[str, str]] = {
    WaitCode.SURGE_UNSCHEDULABLE: "Surge has no node yet.",
    WaitCode.REPLICA_UNSCHEDULABLE: "Pods have no node yet.",
    WaitCode.SURGE_GATED: "Surge waits until its base gang is scheduled.",
    WaitCode.SURGE_NOT_READY: "Surge is not Ready yet.",
    WaitCode.WAITING_FOR_READY: "Pods are not Ready yet.",
    WaitCode.WAITING_FOR_TERMINATION: "Deleted pods have not terminated yet.",
    WaitCode.WAITING_FOR_REPLICA: "Another replica goes first.",
    WaitCode.BUDGET_EXHAUSTED: "maxUnavailable allows no more deletions.",
}
"""The causes come first, the consequences last: of several codes the first explains most."""

# ---- conditions of a PodCliqueSet

AVAILABLE: Final = "{available} of {wanted} replicas are available{surge}."
AVAILABLE_SURGE: Final = ", {surge} of them surge"
NOT_STUCK: Final = "Nothing is in the way."
UPDATING: Final = "An update is under way."
OUTDATED_UNTIL_DELETED: Final = "Pods run an older template until they are deleted."
COMPLETE: Final = "Every replica is complete."
DEPLOYING: Final = "Not every replica is complete yet."

# ---- conditions of a PodClique and of a PodCliqueScalingGroup

CLIQUE_SCHEDULED: Final = "{scheduled} of {live} pods are scheduled; the minimum is {minimum}."
CLIQUE_UPDATING: Final = "An update replaces its pods."
CLIQUE_TERMINATED: Final = "Gang termination recreates its pods."
CLIQUE_SCALED_BELOW: Final = "It is scaled to {wanted} pods; the minimum is {minimum}."
CLIQUE_BREACHED_SCHEDULED: Final = "{scheduled} pods are scheduled; the minimum is {minimum}."
CLIQUE_HEALTHY_PODS: Final = "{healthy} pods are Ready or starting; the minimum is {minimum}."
GROUP_AVAILABLE: Final = "{available} of {wanted} replicas are available; the minimum is {minimum}."
GROUP_UPDATING: Final = "An update replaces its replicas."
GROUP_TERMINATED: Final = "Gang termination recreates its replicas."
GROUP_TERMINATING: Final = "It was below its minimum for longer than terminationDelay."

# ---- timeline events

UPDATE_SUPERSEDED: Final = "The update of {name} to {former} is superseded by one to {current}."
UPDATE_STARTED: Final = "An update of {name} to {current} begins ({strategy})."
UPDATE_ENDED: Final = "The update of {name} to {current} has ended."
REPLICA_SELECTED: Final = "Replica {name} is selected for the update."
REPLICA_CREATED: Final = "Replica {name} is created."
SURGE_CREATED: Final = "Replica {name} is created as surge."
REPLICA_DELETED: Final = "Replica {name} is deleted: {reason}."
PODS_CREATED: Final = "Pods of {clique} are created with the indices {indices}."
POD_DELETED: Final = "Pod {name} (index {index}) of {clique} is deleted: {reason}."
GANG_TERMINATED: Final = (
    "Replica {name} is recreated: {breached} was below its minimum for longer than terminationDelay."
)

DELETION_REASONS: Final[Mapping[str, str]] = {
    Reason.OUTDATED_UNAVAILABLE: "it is outdated and not available",
    Reason.OUTDATED: "it is outdated and next to be replaced",
    Reason.OUTDATED_SURGE: "it is surge of a superseded template",
    Reason.SURGE_NOT_ALLOWED: "it is surge beyond what maxSurge allows",
    Reason.SURGE_DONE: "it was surge, and every original is updated and available",
    Reason.SCALED_IN: "it is beyond the desired number",
}

# ---- titles and buttons, as pages show them

WAIT_TITLES: Final[Mapping[str, str]] = {
    WaitCode.WAITING_FOR_READY: "Waiting for pods to become ready",
    WaitCode.WAITING_FOR_TERMINATION: "Waiting for pods to terminate",
    WaitCode.BUDGET_EXHAUSTED: "maxUnavailable allows no more deletions",
    WaitCode.SURGE_UNSCHEDULABLE: "Surge cannot be scheduled",
    WaitCode.SURGE_NOT_READY: "Waiting for surge to become ready",
    WaitCode.SURGE_GATED: "Surge waits for its base gang",
    WaitCode.REPLICA_UNSCHEDULABLE: "Pods cannot be scheduled",
    WaitCode.WAITING_FOR_REPLICA: "Another replica goes first",
    WaitCode.AWAITING_DELETION: "Outdated pods wait until you delete them",
    WaitCode.SCALED_BELOW_MIN_AVAILABLE: "Scaled below minAvailable",
    WaitCode.IMAGE_NOT_PULLED: "Image cannot be pulled",
    WaitCode.CONTAINER_NOT_CREATED: "Container cannot be created",
    WaitCode.OUT_OF_MEMORY: "Container ran out of memory",
    WaitCode.CRASH_LOOP: "Container keeps crashing",
    WaitCode.TOO_FEW_AVAILABLE: "Too few replicas are available",
}
PROBLEM_TITLES: Final[Mapping[str, str]] = {
    **WAIT_TITLES,
    WaitCode.WAITING_FOR_READY: "Pods do not become ready",
    WaitCode.WAITING_FOR_TERMINATION: "Pods do not terminate",
    WaitCode.SURGE_NOT_READY: "Surge does not become ready",
    # Faults, by the type of the condition.
    conditions.VALID: "The manifest is not valid",
    conditions.WRITE_DENIED: "The cluster rejects writes",
}
# What the workload list shows for the reason of a fault. Those of WriteDenied are the API server's.
FAULT_LABELS: Final[Mapping[str, str]] = {
    conditions.INVALID_SPEC: PROBLEM_TITLES[conditions.VALID],
    **dict.fromkeys(
        ("AlreadyExists", "BadRequest", "Conflict", "Forbidden", "Invalid", "NotFound"),
        PROBLEM_TITLES[conditions.WRITE_DENIED],
    ),
}
# What the workload list shows for the reason of the condition `Progressing`; other reasons are shown as their words.
REASON_LABELS: Final[Mapping[str, str]] = {
    **PROBLEM_TITLES,
    "": "Not processed yet",
    "UpdateInProgress": "Rolling",
    "Deploying": "Deploying",
    "Complete": "Settled",
}
REMEDY_LABELS: Final[Mapping[str, str]] = {
    Remedy.ADD_CAPACITY: "Check the nodes",
    Remedy.SET_MAX_SURGE_TO_ZERO: "Set maxSurge to 0",
    Remedy.DELETE_SURGE: "Delete the surge",
    Remedy.RAISE_MAX_UNAVAILABLE: "Raise maxUnavailable",
    Remedy.LOOK_AT_PODS: "Check the pods",
    Remedy.ROLL_BACK: "Roll back",
    Remedy.FORCE_DELETE_PODS: "Force-delete the pods",
    Remedy.DELETE_OUTDATED_PODS: "Delete outdated pods",
    Remedy.SCALE_IN: "Scale in",
}

_MAX_NAMES: Final = 3


class Subject:
    """Names or a number of things in a sentence, with the verbs that fit: `{pods}`, `{pods:is|are}`."""

    __slots__ = ("_is_one", "_text")

    def __init__(self, text: str, *, is_one: bool) -> None:
        """Take the words, and whether the verb is singular."""
        self._text = text
        self._is_one = is_one

    def __format__(self, forms: str) -> str:
        """Return the words, or of two forms the one that fits them."""
        if not forms:
            return self._text
        one, several = forms.split("|")
        return one if self._is_one else several


def name_all(names: Sequence[str], prefix: str = "") -> Subject:
    """Return names as a list in words; of many only the first few."""
    return Subject(f"{prefix}{render_list(names)}", is_one=len(names) == 1)


def count(number: int, noun: str = "") -> Subject:
    """Return a number, with its noun in the plural if it is not 1."""
    is_one = number == 1
    return Subject(f"{number} {noun}{'' if is_one else 's'}" if noun else str(number), is_one=is_one)


def render_list(names: Sequence[str]) -> str:
    """Return names as a list in words; of many only the first few."""
    if len(names) > _MAX_NAMES + 1:
        return f"{', '.join(names[:_MAX_NAMES])} and {len(names) - _MAX_NAMES} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
