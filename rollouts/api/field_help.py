"""What fields of answers mean, for readers of the description who could not guess it.

`response_serializers` puts these sentences beside the fields that it makes from dataclasses; a class that extends
another one takes over its sentences. What a name says already is left out. A test holds each of them against the
description, so none outlives its field.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_VERSION: Final = "<uid>.<generation>. Send it in quotes as If-Match with a command."
_TEMPLATE_HASH: Final = "Of the clique's pod template; pods with another one are outdated."
_GENERATION_HASH: Final = "Of all pod templates together."
_FLOOR: Final = "Fewer may not be available because of the update."
_UPDATED: Final = "Of the desired pods those that are available on the current template; surge is none of them."

_FIELD_HELP: Final[Mapping[str, Mapping[str, str]]] = {
    # ---- workloads
    "WorkloadSummary": {
        "version": _VERSION,
        "leaving": "It has been deleted and is on its way out.",
        "reason": "What makes the state so, in one word: Complete, AwaitingDeletion, SurgeUnschedulable, …",
        "waits_for": "What an update waits for that is not stuck, in one word: WaitingForReady, …; empty: nothing.",
        "available_replicas": "Of the set: those that serve, never more than replicas; surge stands in for others.",
        "updated_replicas": "Of the set: available with every pod on the current template; surge is not counted.",
        "generation_hash": f"{_GENERATION_HASH} Empty until the controller has looked at it.",
        "found_by": "What a search met, where the names do not show it.",
    },
    "WorkloadDetail": {
        "observed_generation": "Up to which generation the controller has looked at it.",
        "annotations": "What may be secret is hidden.",
        "revision": "The number of its current template. Null: not on record yet.",
        "progress": "Null: it was never updated.",
        "rollout": "The newest one.",
        "findings": "Why its manifest cannot be read.",
        "unsupported": "Fields of its manifest that have no effect yet, and what does not happen because of that.",
        "cluster_trouble": "Why what is shown may be old. Empty: nothing is the matter.",
    },
    "StrategyInForce": {"override": "The id of the override that sets it. Null: none does."},
    "Component": {
        "group": "The scaling group that a clique is in. Empty: none.",
        "min_available": "So many must be scheduled together, and available for it to count as available.",
        "cliques": "Of a scaling group.",
    },
    "UpdateProgress": {"updating": "The replicas of the set that it is at work in."},
    "ConditionNote": {"since": "When its status last changed."},
    # ---- trees
    "WorkloadTree": {
        "version": _VERSION,
        "strategy": "The one in force, overrides included.",
        "generation_hash": _GENERATION_HASH,
        "revision": "The number of the current template. Null: not on record yet.",
        "wanted": "Replicas of the set.",
        "strangers": "What carries the workload's labels and has no place in it; nobody touches it.",
        "findings": "Why there is no tree.",
    },
    "PodCounts": {"leaving": "Deleted and on their way out; they count as nothing else."},
    "ReplicaNode": {
        "complete": "Just what is wanted is there, all of it available and of the current template.",
        "surge": "Its index is beyond the wanted number.",
        "updating": "The update is at work in it.",
        "cliques": "Those in no scaling group.",
    },
    "GroupNode": {
        "template": "Its name in the set's template.",
        "exists": "Whether the cluster has it.",
        "needed": "Available replicas that make it available: its minAvailable, whatever it is scaled to.",
        "complete": "Just what is wanted is there, all of it available and of the current template.",
        "updating": "Its update has begun and not ended.",
    },
    "GroupReplicaNode": {"surge": "Its index is beyond the wanted number."},
    "CliqueNode": {
        "template": "Its name in the set's template.",
        "exists": "Whether the cluster has it.",
        "needed": "Available pods that make it available: its minAvailable, whatever it is scaled to.",
        "template_hash": "The current one.",
        "promised_hash": "The one that its PodClique carries. Empty: there is none.",
        "gated_pods": "Not to be scheduled yet: they wait for their gang.",
        "complete": "Just what is wanted is there, all of it available and of the current template.",
        "updating": "Its update has begun and not ended.",
    },
    "PodNode": {
        "index": "Its place within the clique; whoever comes after it has the same.",
        "template_hash": _TEMPLATE_HASH,
        "revision": "The newest with this template. Null: the template is not on record.",
        "available": "Ready and not leaving.",
        "surge": "Beyond the wanted number.",
        "leaving": "It has been deleted and is on its way out.",
        "gated": "Not to be scheduled yet: it waits for its gang.",
        "node": "Empty while it has none.",
        "reason": "Why it is not further, in one word: Unschedulable, ImagePullBackOff, …",
        "message": "The same in the scheduler's or kubelet's words, secrets hidden.",
        "restarts": "Of all its containers.",
        "ready_since": "Since when `ready` is what it is.",
    },
    # ---- why nothing moves
    "Diagnosis": {
        "version": _VERSION,
        "at": "When it was looked at.",
        "steps": "Writes that the controller would send now. With none it only waits.",
        "look_again_at": "When a wait becomes a problem.",
        "findings": "Why it cannot be acted on.",
        "obstacle": "Why the controller does not look at it at all. Empty: it does.",
    },
    "Wait": {
        "code": "What it waits for, in one word that stays: WaitingForReady, BudgetExhausted, SurgeUnschedulable, …",
        "component": "The object that waits.",
        "units": "The pods or replicas it waits for.",
        "remedies": "What would help, each in one word: DeleteSurge, SetMaxSurgeToZero, … For a problem only what"
        " ends it when it is simulated, the best first; of a preview that gets stuck only what needs no such trial.",
        "is_problem": "False: only to be known, like AwaitingDeletion.",
        "waited_seconds": "Of pods: for how long the longest of them has waited. Null: not known.",
        "usual_seconds": "How long such pods take from their node to Ready. Null: none has been measured.",
    },
    # ---- history
    "RolloutSummary": {
        "from_hash": "Empty for the first one.",
        "from_revision": "Null: not on record any more.",
        "to_revision": "Null: not on record any more.",
        "outcome": "Empty while it is under way. Stuck is no end: it may still complete.",
        "progressing_seconds": "How long it moved.",
        "waiting_seconds": "How long it was stuck.",
    },
    "RolloutDetail": {"samples": "The counts of pods over time."},
    "SamplePoint": {
        "desired": "By the manifest and what components are scaled to.",
        "available": "Surge included.",
        "updated": _UPDATED,
        "surge": "Beyond the desired number, available or not.",
        "floor": _FLOOR,
    },
    "TimelineEntry": {
        "rollout": "The id of the rollout.",
        "reason": "What happened, in one word: UpdateStarted, UnitDeleted, …",
        "component": "The object it is about.",
        "count": "How often, or how many of the kind.",
    },
    "RevisionSummary": {
        "generation_hash": _GENERATION_HASH,
        "is_current": "The workload's template is this one now.",
    },
    "RevisionDetail": {"template": "spec.template; what may be secret is hidden."},
    "RevisionDiff": {
        "changed_cliques": "Whose pods an update from one to the other replaces.",
        "text": "A unified diff of both templates as YAML. Each hunk names the cliques that it is in.",
        "is_cut": "There is more of it than is shown.",
        "is_hidden": "The revisions differ, and all of what differs is hidden from you.",
    },
    "EventItem": {
        "id": "The uid of the Event.",
        "at": "When it happened last.",
        "kind": "Of the object that it is about.",
        "name": "Of the object that it is about.",
        "count": "How often it happened.",
        "source": "Who tells it.",
    },
    "AuditItem": {
        "at": "When it was over; if that is not known, when it began.",
        "actor": "The name of the account.",
        "token": "The name of the API token. Empty: none was shown.",
        "via": "By which door it came: api, page, admin, start.",
        "command": "The same word as that of its permission.",
        "result": "Done, Refused (nothing was changed), Failed (the detail says what may have been), or Begun.",
    },
    # ---- strategies
    "StrategyDetail": {
        "version": _VERSION,
        "ignored": "Overrides that are about it and do not count.",
        "until": "When the first of the overrides that are about it runs out.",
        "warnings": "What is odd about the strategy as it counts.",
        "findings": "Why it cannot be read.",
    },
    "StrategyLevel": {
        "component": "A clique or scaling group. Empty: the set.",
        "is_used": "Whether the strategy looks at what is written here.",
        "resolved_max_unavailable": "In numbers. Null: an update does nothing by itself at this level.",
        "resolved_max_surge": "In numbers. Null: an update does nothing by itself at this level.",
        "live": "What it comes to in each replica of the set, where it may be scaled by itself.",
    },
    "PartSource": {"override": "The id of the override. Null: none sets it."},
    # ---- surge
    "SurgeItem": {
        "name": "Of a replica of the set or of a scaling group, or of a pod.",
        "mark": "Stands for the very objects that were listed; send it with the name to delete them and no others.",
        "component": "The set, scaling group or PodClique that it is surge of.",
    },
    "SurgePod": {"node": "Empty while it has none."},
    # ---- clusters
    "ClusterDetail": {
        "kind": "sandbox, kubeconfig or in-cluster.",
        "origin": "Where its address and credentials come from.",
        "version": "Of its API server. Empty: not reached yet.",
        "complete": "Whether everything has been listed once.",
        "heard_at": "When it last said anything.",
        "trouble_code": "What is wrong with it, in one word. Empty: all is well.",
        "other_operator_code": "OtherOperator where Grove UI changes nothing beside another operator. Empty: it may.",
        "other_operator": "Why Grove UI changes nothing there. Empty: no other operator runs its workloads.",
        "workloads": "How many there are in each state.",
    },
    # ---- simulations
    "Simulated": {
        "version": "Of the workload that it was simulated on. Empty: it is not there yet.",
        "starts_update": "The template of some pods is another one.",
        "is_rehearsal": "The change by itself replaces nothing: what is told is the next rollout.",
        "former": "The same without the change, where a strategy is judged.",
        "end": "Stuck: nothing moves any more, and the waits say why. Unfinished: time was up.",
        "seconds": "Of the cluster's time.",
        "assumptions": "What the numbers rest on; `behaviour` of the request changes it.",
        "replaced": "How many of the pods that were there before go, by clique of the template.",
        "rounds": "Moments at which something was created or deleted.",
        "steps_left_out": "In the middle.",
    },
    "SimulatedStep": {
        "at": "Seconds since the change.",
        "writes": "How many of each sort, such as `Create Pod`.",
        "counts": "Of the components whose counts changed.",
        "left_out": "Moments and counts beyond those that are told.",
    },
    "Lowest": {
        "available": "Before the change.",
        "lowest": "The fewest that were available meanwhile.",
        "most_surge": "The most beyond the wanted number.",
    },
    "PodsOverTime": {"desired": "In the end.", "floor": _FLOOR, "most": "The most that were there."},
    "PodsAt": {
        "at": "Seconds since the change.",
        "available": "The fewest at this moment; surge included.",
        "updated": _UPDATED,
        "live": "Those that are not leaving, available or not; surge included.",
        "surge": "Of these, the ones beyond the places that are desired.",
    },
    "Pace": {"seconds_to_ready": "Of the slowest clique.", "is_measured": "The pods that run now took so long."},
    "Assumption": {
        "about": "Room, OtherPods, NotSimulated, Ready, NeverReady or Termination.",
        "text": "The assumption, as a sentence.",
    },
}


def field_help_of(value: type[Any]) -> dict[str, str]:
    """Return the sentences for the fields of a dataclass, its own before those of what it extends."""
    found: dict[str, str] = {}
    for one in reversed(value.__mro__):
        found |= _FIELD_HELP.get(one.__name__, {})
    return found


def all_field_help() -> Iterator[tuple[str, str, str]]:
    """Return every sentence with its class and field."""
    return ((name, field, words) for name, fields in _FIELD_HELP.items() for field, words in fields.items())
