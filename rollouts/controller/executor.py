"""Carries a plan out: writes to the cluster in the order of the plan, many at once, each with its preconditions.

Before it: `engine.plan.planner`, whose actions are ordered so that stopping after any of them does no harm. After it:
`rounds`, which goes on from the answers, and the reconciler, which stores every one of them in the mirror.

The invariants: the stages of a plan (creates, patches, deletes, gates, statuses) follow each other; of a replica of the
set that is deleted whole, the parts go in the order of the plan; nothing is written to an object that is not the one
the plan has seen (uid) or, where it matters, not as the plan has seen it (resourceVersion).

What can happen to a write, and what follows:

    done       its answer is the newest there is of the object
    outrun     somebody was quicker (Conflict, NotFound, AlreadyExists): the truth is fetched, the next pass looks again
    denied     the cluster will not have it (Forbidden, Invalid, ...): everything else is still done, but no more of
               its like, once it is forbidden or has been denied often
    unknown    no answer (Unavailable), or not now (Unauthorized, Throttled): nothing more is sent. Names are a function
               of what is there and everything else has preconditions, so sending it again is harmless; only of pods
               and deletes somebody must learn what became of them before the next plan (`needs_confirmation`).
"""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import groupby, zip_longest
from typing import Any, Final

from rollouts.cluster import (
    AlreadyExists,
    ClusterClient,
    ClusterError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Obj,
    Resource,
    Throttled,
    Unauthorized,
    Unavailable,
    UnknownResource,
)
from rollouts.cluster.resources import (
    PODCLIQUES,
    PODCLIQUESCALINGGROUPS,
    PODCLIQUESETS,
    PODGANGS,
    PODS,
    SERVICES,
)
from rollouts.engine.model import names
from rollouts.engine.model.actions import Action, Create, Delete, Kind, Patch, RemoveGate, WriteStatus
from rollouts.engine.model.observed import Gang, Group, Observed, Service
from rollouts.mirror import ObjectChanges

logger = logging.getLogger(__name__)

RESOURCES: Final[Mapping[Kind, Resource]] = {
    Kind.SET: PODCLIQUESETS,
    Kind.CLIQUE: PODCLIQUES,
    Kind.GROUP: PODCLIQUESCALINGGROUPS,
    Kind.GANG: PODGANGS,
    Kind.POD: PODS,
    Kind.SERVICE: SERVICES,
}

WRITER_THREADS: Final = 16
# A pass that would take longer stops between two writes and goes on as the next pass: far within the time limits.
MAX_WRITES_PER_PASS: Final = 512
MAX_WRITE_SECONDS: Final = 8.0
MAX_REJECTIONS_PER_KIND: Final = 16  # of one kind, before its like is not sent any more
_WRITES_PER_BATCH: Final = 8 * WRITER_THREADS  # between two looks at the clock

ObjectKey = tuple[Kind, str]
UnconfirmedWrite = tuple[str, str, str]
"""An object that was written, nobody knows with what effect: kind, name, and the uid if it was there before."""


class WriteResult(Enum):
    """What became of a write."""

    APPLIED = "Done"
    CONFLICT = "Outrun"
    REJECTED = "Denied"
    UNKNOWN = "Unknown"
    SKIPPED = "Unsent"


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """What became of one action, and what was learnt of the object."""

    action: Action
    result: WriteResult
    current: Obj | None = None  # as it is now
    deleted: Obj | None = None  # as it was last, or just who it was
    error: ClusterError | None = None


@dataclass(slots=True)
class ExecutionResult:
    """What became of a plan."""

    writes: list[WriteRecord] = field(default_factory=list)
    is_truncated: bool = False  # there was more than fits into one pass

    def with_result(self, fate: WriteResult) -> list[WriteRecord]:
        """Return the answers with this fate."""
        return [answer for answer in self.writes if answer.result is fate]

    @property
    def failure(self) -> ClusterError | None:
        """What ended the pass before its time."""
        return next((answer.error for answer in self.writes if answer.result is WriteResult.UNKNOWN), None)

    @property
    def unconfirmed(self) -> list[Action]:
        """What nobody knows of whether it happened, and somebody must."""
        return [answer.action for answer in self.with_result(WriteResult.UNKNOWN) if needs_confirmation(answer.action)]

    def changes(self) -> Iterator[ObjectChanges]:
        """Yield everything that was learnt, by kind, for the mirror."""
        for kind, resource in RESOURCES.items():
            answers = [answer for answer in self.writes if kind_of(answer.action) is kind]
            found = [answer.current for answer in answers if answer.current is not None]
            gone = [answer.deleted for answer in answers if answer.deleted is not None]
            if found or gone:
                yield ObjectChanges(resource, found, gone)


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What a plan was made from, as far as its writes need it."""

    namespace: str
    observed: Observed
    set_resource_version: str  # resourceVersion of the PodCliqueSet


def apply_plan(
    cluster: ClusterClient, actions: Sequence[Action], context: ExecutionContext, result: ExecutionResult
) -> None:
    """Carry out the actions of a plan.

    What becomes of them is put into `applied` on the way, so that the caller has it whatever ends this.
    """
    run = _PlanExecution(cluster, context.namespace, _expected_versions(actions, context), result)
    deadline = time.monotonic() + MAX_WRITE_SECONDS
    for part in _split_into_batches(actions[:MAX_WRITES_PER_PASS], context.observed):
        if time.monotonic() > deadline:
            result.is_truncated = True
            return
        run.send_batch(part)
        if run.is_stopped:
            return
    result.is_truncated = len(actions) > MAX_WRITES_PER_PASS


def resolve_unconfirmed(
    cluster: ClusterClient, namespace: str, unconfirmed: Iterable[UnconfirmedWrite]
) -> ExecutionResult:
    """Learn what became of writes; raises what keeps the cluster from answering."""
    run = _PlanExecution(cluster, namespace, {}, ExecutionResult())
    objects = [Delete(Kind(kind), name, uid, reason="") for kind, name, uid in unconfirmed]
    return ExecutionResult(
        list(_writer_pool(os.getpid()).map(lambda obj: run.fetch_current(obj, WriteResult.APPLIED, None), objects))
    )


def needs_confirmation(action: Action) -> bool:
    """Say whether a plan must not be made before it is known what became of this.

    A delete that is not known of would be paid for twice. A pod that is not known of would come a second time: its name
    follows from the pods of its index, and one of those may have gone meanwhile.
    """
    return isinstance(action, Delete) or (isinstance(action, Create) and action.kind is Kind.POD)


def make_unconfirmed_write(action: Action) -> UnconfirmedWrite:
    """Return what it takes to find out about an action later."""
    uid = action.uid if isinstance(action, Delete) else ""
    return str(kind_of(action)), name_of(action), uid


def kind_of(action: Action) -> Kind:
    """Return the kind of the object that an action is about."""
    return Kind.POD if isinstance(action, RemoveGate) else action.kind


_VERBS: Final[Mapping[type, str]] = {
    Create: "create",
    Delete: "delete",
    Patch: "patch",
    RemoveGate: "ungate",
    WriteStatus: "status",
}


def write_key_of(action: Action) -> str:
    """Return what tells a write from all others of a workload: verb, kind and name."""
    return f"{_VERBS[type(action)]} {kind_of(action)} {name_of(action)}"


def name_of(action: Action) -> str:
    """Return the name of the object that an action is about."""
    if isinstance(action, Create):
        name: str = action.manifest["metadata"]["name"]
        return name
    return action.pod if isinstance(action, RemoveGate) else action.name


# ---- what is done together


def _split_into_batches(actions: Sequence[Action], observed: Observed) -> Iterator[Sequence[Action]]:
    """Cut a plan into parts that are carried out one after the other, the actions within a part all at once."""
    for _, members in groupby(actions, type):
        stage = [*members]
        deletes = [action for action in stage if isinstance(action, Delete)]
        for part in compute_delete_batches(deletes, observed) if deletes else [stage]:
            for start in range(0, len(part), _WRITES_PER_BATCH):
                yield part[start : start + _WRITES_PER_BATCH]


def compute_delete_batches(deletes: Sequence[Delete], observed: Observed) -> list[list[Delete]]:
    """Return which deletes are sent together: replicas of the set side by side, each in its own order.

    A replica that is deleted whole must look outdated until the last of it is asked to go, so its parts go one by one.
    Pods of one clique and one template are all alike, and go at once. Example, replicas 0 and 1 of a set whose pods a
    are outdated and whose clique b is not: [b0 b1] [a0 a0' a1 a1'].
    """
    lanes: dict[object, list[list[Delete]]] = {}
    last: dict[object, object] = {}
    for delete, (lane, alike) in zip(deletes, _classify_deletes(deletes, observed), strict=True):
        rounds = lanes.setdefault(lane, [])
        if alike is not None and last.get(lane) == alike:
            rounds[-1].append(delete)
        else:
            rounds.append([delete])
        last[lane] = alike
    return [[one for part in parts for one in part] for parts in zip_longest(*lanes.values(), fillvalue=[])]


def _classify_deletes(deletes: Iterable[Delete], observed: Observed) -> Iterator[tuple[object, object]]:
    """Yield for each delete its replica of the set, and of pods those it may go together with."""
    cliques = {clique.name: clique.replica for clique in observed.cliques}
    pods = {pod.uid: pod for pod in observed.pods}
    holders: list[Group | Gang | Service] = [*observed.groups, *observed.gangs, *observed.services]
    others = {one.uid: one.replica for one in holders}
    for delete in deletes:
        if delete.kind is Kind.POD:
            pod = pods[delete.uid]
            yield cliques.get(pod.clique, pod.clique), (pod.clique, pod.template_hash)
        elif delete.kind is Kind.CLIQUE:
            yield cliques[delete.name], None
        else:
            yield others[delete.uid], None


def _expected_versions(actions: Sequence[Action], scene: ExecutionContext) -> dict[ObjectKey, str]:
    """Return the resourceVersions that statuses are written over, and pods must have that go since they do not serve.

    Such a pod costs no capacity. If it has become Ready since it was seen, it would, and nobody has allowed for it.
    """
    wanted = {(action.kind, action.name) for action in actions if isinstance(action, WriteStatus)}
    known = {(Kind.CLIQUE, clique.name): clique.resource_version for clique in scene.observed.cliques}
    known |= {(Kind.GROUP, group.name): group.resource_version for group in scene.observed.groups}
    known |= {(Kind.GANG, gang.name): gang.resource_version for gang in scene.observed.gangs}
    versions = {version: known.get(version, scene.set_resource_version) for version in wanted}
    deleted = {action.uid for action in actions if isinstance(action, Delete) and action.kind is Kind.POD}
    idle = (pod for pod in scene.observed.pods if pod.uid in deleted and not pod.ready)
    return versions | {(Kind.POD, pod.name): pod.resource_version for pod in idle}


# ---- writes


class _PlanExecution:
    """One plan on its way."""

    def __init__(
        self, cluster: ClusterClient, namespace: str, versions: dict[ObjectKey, str], applied: ExecutionResult
    ) -> None:
        self._result = applied
        self._cluster = cluster
        self._namespace = namespace
        self._versions = versions  # moves on with our own patches
        self._stopped = threading.Event()
        self._rejections: Counter[tuple[type, Kind]] = Counter()

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more may be sent."""
        return self._stopped.is_set()

    def send_batch(self, actions: Sequence[Action]) -> None:
        """Send some writes at once and take in their answers."""
        if len(actions) == 1:
            answers = [self._attempt(actions[0])]
        else:
            answers = list(_writer_pool(os.getpid()).map(self._attempt, actions))
        self._result.writes.extend(answers)
        for answer in answers:
            if isinstance(answer.action, Patch) and answer.result is WriteResult.APPLIED and answer.current is not None:
                place = (answer.action.kind, answer.action.name)
                self._versions[place] = answer.current["metadata"]["resourceVersion"]

    def _attempt(self, action: Action) -> WriteRecord:
        like = (type(action), kind_of(action))
        if self.is_stopped or self._rejections[like] >= MAX_REJECTIONS_PER_KIND:
            return WriteRecord(action, WriteResult.SKIPPED)
        try:
            return self._send(action)
        except (Unavailable, Unauthorized, Throttled) as error:
            self._stopped.set()
            return WriteRecord(action, WriteResult.UNKNOWN, error=error)
        except (Forbidden, UnknownResource) as error:
            self._rejections[like] += MAX_REJECTIONS_PER_KIND
            return WriteRecord(action, WriteResult.REJECTED, error=error)
        except ClusterError as error:
            self._rejections[like] += 1
            return WriteRecord(action, WriteResult.REJECTED, error=error)

    def _send(self, action: Action) -> WriteRecord:
        try:
            if isinstance(action, Create):
                return WriteRecord(
                    action, WriteResult.APPLIED, self._cluster.create(RESOURCES[action.kind], dict(action.manifest))
                )
            if isinstance(action, Delete):
                return self._delete(action)
            if isinstance(action, Patch):
                return WriteRecord(action, WriteResult.APPLIED, self._patch(action))
            if isinstance(action, RemoveGate):
                return self._remove_gate(action)
            return WriteRecord(action, WriteResult.APPLIED, self._write_status(action))
        except (Conflict, NotFound) as error:
            return self.fetch_current(action, WriteResult.CONFLICT, error)

    def _delete(self, action: Delete) -> WriteRecord:
        answer = self._cluster.delete(
            RESOURCES[action.kind],
            action.name,
            namespace=self._namespace,
            uid=action.uid,
            resource_version=self._versions.get((action.kind, action.name)),
            propagation="Background",
        )
        if not _is_deleted_object(answer):
            return WriteRecord(action, WriteResult.APPLIED, deleted=self._reference(action.name, action.uid))
        if _is_terminating(answer):
            return WriteRecord(action, WriteResult.APPLIED, answer)
        return WriteRecord(action, WriteResult.APPLIED, deleted=answer)

    def _patch(self, action: Patch) -> Obj:
        resource, patch = RESOURCES[action.kind], action.patch
        if action.replaced_fields:
            current = self._cluster.get(resource, action.name, namespace=self._namespace)
            for path in action.replaced_fields:
                patch = replace_whole(patch, current, path.split("."))
        metadata: Obj = {**patch.get("metadata", {}), "uid": action.uid}
        if action.resource_version:
            metadata["resourceVersion"] = action.resource_version
        change = {**patch, "metadata": metadata}
        return self._cluster.patch_merge(resource, action.name, change, namespace=self._namespace)

    def _remove_gate(self, action: RemoveGate) -> WriteRecord:
        """Take our gate off a pod: it is the first, as we made it, or else it is looked for."""
        try:
            return WriteRecord(action, WriteResult.APPLIED, self._remove_gate_at(action, 0))
        except Invalid:
            pod = self._cluster.get(PODS, action.pod, namespace=self._namespace)
        gates = [gate.get("name") for gate in pod["spec"].get("schedulingGates") or ()]
        if pod["metadata"].get("uid") != action.uid or names.SCHEDULING_GATE not in gates:
            return WriteRecord(action, WriteResult.CONFLICT, pod)
        return WriteRecord(
            action, WriteResult.APPLIED, self._remove_gate_at(action, gates.index(names.SCHEDULING_GATE))
        )

    def _remove_gate_at(self, action: RemoveGate, place: int) -> Obj:
        gate = f"/spec/schedulingGates/{place}"
        operations = [
            # Not a test: to write another uid is refused as a conflict, a failed test only as something invalid.
            {"op": "replace", "path": "/metadata/uid", "value": action.uid},
            {"op": "test", "path": f"{gate}/name", "value": names.SCHEDULING_GATE},
            {"op": "remove", "path": gate},
        ]
        return self._cluster.patch_json(PODS, action.pod, operations, namespace=self._namespace)

    def _write_status(self, action: WriteStatus) -> Obj:
        resource = RESOURCES[action.kind]
        obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "namespace": self._namespace,
                "name": action.name,
                "uid": action.uid,
                "resourceVersion": self._versions[action.kind, action.name],
            },
            "status": action.status,
        }
        return self._cluster.update(resource, obj, subresource="status")

    def fetch_current(self, action: Action, fate: WriteResult, error: ClusterError | None) -> WriteRecord:
        """Fetch the truth about the object of an action."""
        name = name_of(action)
        try:
            found = self._cluster.get(RESOURCES[kind_of(action)], name, namespace=self._namespace)
        except NotFound:
            uid = "" if isinstance(action, Create) else action.uid
            return WriteRecord(action, fate, deleted=self._reference(name, uid) if uid else None, error=error)
        if isinstance(error, AlreadyExists) and isinstance(action, Create) and not _has_owner(found, action.manifest):
            taken = f"{error}; the one that is there belongs to somebody else"
            return WriteRecord(
                action, WriteResult.REJECTED, found, error=AlreadyExists(taken, code=error.code, reason=error.reason)
            )
        return WriteRecord(action, fate, found, error=error)

    def _reference(self, name: str, uid: str) -> Obj:
        return {"metadata": {"namespace": self._namespace, "name": name, "uid": uid}}


def replace_whole(patch: Mapping[str, Any], current: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return a merge patch in which the field at the path takes the place of the current one.

    A merge patch leaves alone what it does not name, so what is to go is named as null:

    >>> replace_whole({"spec": {"pod": {"a": 1}}}, {"spec": {"pod": {"a": 0, "b": {"c": 2}}}}, ["spec", "pod"])
    {'spec': {'pod': {'a': 1, 'b': None}}}
    """
    if not path:
        return _with_nulls(patch, current)
    inner = current.get(path[0])
    rest = replace_whole(patch[path[0]], inner if isinstance(inner, Mapping) else {}, path[1:])
    return {**patch, path[0]: rest}


def _with_nulls(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name, value in wanted.items():
        inner = current.get(name)
        if isinstance(value, Mapping) and isinstance(inner, Mapping):
            changed[name] = _with_nulls(value, inner)
        else:
            changed[name] = value
    return changed | {name: None for name in current if name not in wanted}


def _is_deleted_object(answer: Obj) -> bool:
    """Say whether a delete was answered with the object, and not with a Status."""
    return answer.get("kind") != "Status" and "uid" in answer.get("metadata", {})


def _is_terminating(obj: Obj) -> bool:
    """Say whether a deleted object is there a while longer: its grace period runs, or somebody holds it."""
    metadata = obj["metadata"]
    return "deletionTimestamp" in metadata and bool(
        metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers")
    )


def _has_owner(obj: Obj, manifest: Mapping[str, Any]) -> bool:
    """Say whether an object has the owner that the manifest names, or had an earlier one of that name."""
    wanted = {(owner["kind"], owner["name"]) for owner in manifest["metadata"]["ownerReferences"]}
    return any((owner["kind"], owner["name"]) in wanted for owner in obj["metadata"].get("ownerReferences") or ())


@cache
def _writer_pool(_pid: int) -> ThreadPoolExecutor:
    """Return the writers of this process; made on first use, so never carried across a fork."""
    return ThreadPoolExecutor(WRITER_THREADS, thread_name_prefix="writer")
