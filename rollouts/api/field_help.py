"""Descriptions of response fields whose names do not explain them.

`response_serializers` puts each sentence beside the field that it makes from a dataclass; a class inherits the
sentences of its base class. A field whose name says everything has no sentence. A test compares all sentences with the
OpenAPI description, so a sentence cannot outlive its field.
"""

from collections.abc import Mapping
from typing import Any, Final

_VERSION: Final = "<uid>.<generation>. Send it in quotes as If-Match with a command."
_TEMPLATE_HASH: Final = "Hash of the clique's pod template; a pod with another hash is outdated."
_GENERATION_HASH: Final = "Hash of all pod templates together."
_FLOOR: Final = "The update never takes availability below this number."
_UPDATED: Final = "Desired pods that are available on the current template; surge pods are not counted."

FIELD_HELP: Final[Mapping[str, Mapping[str, str]]] = {
    # ---- workloads
    "WorkloadSummary": {
        "version": _VERSION,
        "leaving": "It is being deleted.",
        "reason": "The reason for the state: Complete, AwaitingDeletion, SurgeUnschedulable, …",
        "waits_for": "Why the update waits, while it is not stuck: WaitingForReady, … Empty: it does not wait.",
        "available_replicas": "Available replicas of the set, surge included; never more than replicas.",
        "updated_replicas": "Replicas of the set that are available with all pods on the current template, no surge.",
        "generation_hash": f"{_GENERATION_HASH} Empty until the controller has processed the workload.",
        "found_by": "What a search matched, if the match is not in the names.",
    },
    "WorkloadDetail": {
        "observed_generation": "The generation that the controller processed last.",
        "annotations": "Values that may be secret are hidden.",
        "revision": "The revision number of its current template. Null: not recorded yet.",
        "progress": "Null: it has never been updated.",
        "rollout": "The newest rollout.",
        "findings": "Why Grove UI cannot read its manifest.",
        "unsupported": "Fields of its manifest that have no effect yet, each with what does not happen.",
        "cluster_trouble": "Why this answer may be out of date. Empty: the cluster is healthy.",
    },
    "StrategyInForce": {"override": "The id of the override that sets it. Null: no override does."},
    "Component": {
        "group": "The scaling group that the clique belongs to. Empty: none.",
        "min_available": "This many are scheduled together; with fewer available, the component is not available.",
        "cliques": "The cliques of a scaling group.",
    },
    "UpdateProgress": {"updating": "Indices of the replicas of the set that are being updated."},
    "ConditionNote": {
        "message": "In Valid and WriteDenied, values that may be secret are hidden.",
        "since": "When its status last changed.",
    },
    # ---- trees
    "WorkloadTree": {
        "version": _VERSION,
        "strategy": "The effective strategy, overrides included.",
        "generation_hash": _GENERATION_HASH,
        "revision": "The revision number of the current template. Null: not recorded yet.",
        "wanted": "Desired replicas of the set.",
        "strangers": "Objects with the workload's labels that do not belong to it; the controller does not touch them.",
        "findings": "Why Grove UI cannot build the tree.",
    },
    "PodCounts": {"leaving": "Terminating pods; no other count includes them."},
    "ReplicaNode": {
        "complete": "It has exactly the desired pods, and all of them are available on the current template.",
        "surge": "Its index is not below the desired number of replicas.",
        "updating": "The update is replacing its pods.",
        "cliques": "Cliques that are in no scaling group.",
    },
    "GroupNode": {
        "template": "Its name in the set's template.",
        "exists": "Whether the object exists in the cluster.",
        "needed": "Its minAvailable: it is available with this many available replicas, whatever it is scaled to.",
        "complete": "It has exactly the desired pods, and all of them are available on the current template.",
        "updating": "Its update has begun and has not ended.",
    },
    "GroupReplicaNode": {"surge": "Its index is not below the desired number of replicas."},
    "CliqueNode": {
        "template": "Its name in the set's template.",
        "exists": "Whether the object exists in the cluster.",
        "needed": "Its minAvailable: it is available with this many available pods, whatever it is scaled to.",
        "template_hash": "The current template hash.",
        "promised_hash": "The template hash in the label of its PodClique. Empty: there is no PodClique.",
        "gated_pods": "Pods that the scheduler may not place yet: they wait for their gang.",
        "complete": "It has exactly the desired pods, and all of them are available on the current template.",
        "updating": "Its update has begun and has not ended.",
    },
    "PodNode": {
        "index": "Its index within the clique; its replacement gets the same index.",
        "template_hash": _TEMPLATE_HASH,
        "revision": "The newest revision with this template. Null: the template is not recorded.",
        "available": "Ready and not terminating.",
        "surge": "It is extra: beyond the desired number.",
        "leaving": "It is terminating.",
        "gated": "The scheduler may not place it yet: it waits for its gang.",
        "node": "Empty until it is scheduled.",
        "reason": "Why it is not Ready: Unschedulable, ImagePullBackOff, …",
        "message": "The message of the scheduler or kubelet, secrets hidden.",
        "restarts": "Restarts of all its containers together.",
        "ready_since": "When `ready` last changed.",
    },
    # ---- why nothing moves
    "Diagnosis": {
        "version": _VERSION,
        "at": "When this diagnosis was made.",
        "steps": "Writes that the controller would send now. Empty: it only waits.",
        "look_again_at": "When a wait becomes a problem.",
        "findings": "Why Grove UI cannot read its manifest.",
        "faults": "Conditions that say why the controller cannot act as the manifest says: Valid (False), WriteDenied"
        " (True).",
        "obstacle": "Why the controller does not process the workload. Empty: it does.",
    },
    "Wait": {
        "code": "Why it waits; a stable code: WaitingForReady, BudgetExhausted, SurgeUnschedulable, …",
        "component": "The object that waits.",
        "units": "The pods or replicas that it waits for. For BudgetExhausted, WaitingForReplica and AwaitingDeletion:"
        " those that wait.",
        "remedies": "Codes of remedies: DeleteSurge, SetMaxSurgeToZero, … For a problem, only remedies that end it in a"
        " simulation, the best first; for a preview that gets stuck, only remedies that need no simulation. A wait that"
        " is no problem has none, except that outdated pods under OnDelete can be deleted.",
        "is_problem": "False: the wait is expected, like AwaitingDeletion. BudgetExhausted is part of the problem that"
        " exhausts the budget.",
        "waited_seconds": "How long the pod that waits longest has waited. Null: unknown.",
        "usual_seconds": "How long such pods usually take from their node to Ready. Null: not measured.",
        "blocked_by": "The replicas that have to be updated or available first. Empty: none blocks it.",
    },
    # ---- history
    "RolloutSummary": {
        "from_hash": "Empty for the first rollout.",
        "from_revision": "Null: no longer recorded.",
        "to_revision": "Null: no longer recorded.",
        "outcome": "Empty while it progresses. Stuck is not final: the rollout may still complete.",
        "progressing_seconds": "How long it progressed.",
        "waiting_seconds": "How long it was stuck.",
    },
    "RolloutDetail": {"samples": "Pod counts over time."},
    "SamplePoint": {
        "desired": "Desired pods, by the manifest and the replicas that components are scaled to.",
        "available": "Available pods, surge included.",
        "updated": _UPDATED,
        "surge": "Pods beyond the desired number, available or not.",
        "floor": _FLOOR,
    },
    "TimelineEntry": {
        "rollout": "The id of the rollout.",
        "reason": "What happened: UpdateStarted, PodsCreated, …",
        "component": "The object that it is about.",
        "count": "How often it happened, or how many objects it is about.",
    },
    "RevisionSummary": {
        "generation_hash": _GENERATION_HASH,
        "is_current": "It is the workload's current template.",
    },
    "RevisionDetail": {"template": "spec.template; values that may be secret are hidden."},
    "RevisionDiff": {
        "changed_cliques": "The cliques whose pods an update from one revision to the other replaces.",
        "text": "A unified diff of both templates as YAML. Each hunk names its cliques.",
        "is_cut": "The diff is longer than what is shown.",
        "is_hidden": "The revisions differ, but every difference is hidden from your account.",
    },
    "EventItem": {
        "id": "The uid of the Event.",
        "at": "When it happened last.",
        "kind": "Kind of the object that the Event is about.",
        "name": "Name of the object that the Event is about.",
        "count": "How often it happened.",
        "source": "The component that reported it.",
    },
    "AuditItem": {
        "at": "When it ended; if that is unknown, when it began.",
        "actor": "The name of the account.",
        "token": "The name of the API token. Empty: no token was used.",
        "via": "Where the command came from: api, page, admin or start.",
        "command": "The codename of the command's permission.",
        "result": "Done; Refused: nothing was changed; Failed: the detail says what may have been changed; or Begun.",
    },
    # ---- strategies
    "StrategyDetail": {
        "version": _VERSION,
        "ignored": "Overrides that match the workload but have no effect on it.",
        "until": "When the first of the matching overrides ends.",
        "warnings": "Warnings about the effective strategy.",
        "findings": "Why Grove UI cannot read the strategy.",
    },
    "StrategyLevel": {
        "component": "The clique or scaling group. Empty: the set.",
        "is_used": "Whether the strategy uses the budget of this level.",
        "resolved_max_unavailable": "As a number. Null: updates replace nothing at this level by themselves.",
        "resolved_max_surge": "As a number. Null: updates replace nothing at this level by themselves.",
        "live": "The numbers in each replica of the set, where the component can be scaled separately.",
    },
    "PartSource": {"override": "The id of the override that sets it. Null: no override does."},
    # ---- surge
    "SurgeItem": {
        "name": "Name of a replica of the set, a replica of a scaling group, or a pod.",
        "mark": "Identifies the listed objects; send it with the name so that exactly these are deleted.",
        "component": "The set, scaling group or PodClique that has this surge.",
    },
    "SurgePod": {"node": "Empty until it is scheduled."},
    # ---- clusters
    "ClusterDetail": {
        "kind": "sandbox, kubeconfig or in-cluster.",
        "origin": "The source of its address and credentials.",
        "version": "Version of its API server. Empty: not connected yet.",
        "complete": "Whether every kind has been listed once.",
        "heard_at": "When the watcher last received anything from it.",
        "trouble_code": "What is wrong with the connection: Unreachable, Forbidden, … Empty: nothing.",
        "other_operator_code": "OtherOperator: Grove UI changes nothing there; see `other_operator`. Empty: it may.",
        "other_operator": "Why Grove UI changes nothing there. Empty: no other operator manages its workloads.",
        "workloads": "Number of workloads in each state.",
        "grove_workloads": "Number of workloads that Grove's own operator manages; a takeover makes them Grove UI's.",
    },
    # ---- simulations
    "Simulated": {
        "version": "Version of the workload that was simulated. Empty: the workload does not exist yet.",
        "starts_update": "The change alters the template of some pods.",
        "is_rehearsal": "The change replaces no pods by itself: the answer describes the next rollout.",
        "former": "The same rollout without the change, if the change is a strategy.",
        "end": "Stuck: the rollout stops, and the waits say why. Unfinished: the simulation ran out of time.",
        "seconds": "Duration of the rollout in the simulated cluster.",
        "assumptions": "What the numbers are based on; `behaviour` in the request changes it.",
        "replaced": "How many of the present pods are deleted, by clique of the template.",
        "rounds": "Times at which something was created or deleted.",
        "steps_left_out": "Steps in the middle that the answer leaves out.",
    },
    "SimulatedStep": {
        "at": "Seconds since the change.",
        "writes": "How many writes of each sort, such as `Create Pod`.",
        "counts": "Counts of the components whose counts changed.",
        "left_out": "How many events and counts the answer leaves out.",
    },
    "Lowest": {
        "available": "Available before the change.",
        "lowest": "The fewest that were available during the rollout.",
        "most_surge": "The most beyond the desired number.",
    },
    "PodsOverTime": {"desired": "Desired at the end.", "floor": _FLOOR, "most": "The most pods that existed at once."},
    "PodsAt": {
        "at": "Seconds since the change.",
        "available": "The fewest available at this time, surge included.",
        "updated": _UPDATED,
        "live": "Pods that are not terminating, available or not; surge included.",
        "surge": "Pods of `live` beyond the desired number.",
    },
    "Pace": {
        "seconds_to_ready": "Time to Ready of the slowest clique.",
        "is_measured": "The time was measured on the present pods.",
    },
    "Assumption": {
        "about": "Room, OtherPods, NotSimulated, Ready, NeverReady or Termination.",
        "text": "The assumption, as a sentence.",
    },
}


def field_help_of(value: type[Any]) -> dict[str, str]:
    """Return the sentences for the fields of a dataclass; its own replace those of its base classes."""
    found: dict[str, str] = {}
    for one in reversed(value.__mro__):
        found |= FIELD_HELP.get(one.__name__, {})
    return found
