"""Sends the writes of a round to the cluster: in the order of the plan, many at once, each with its preconditions.

Before it: `engine.plan.planner`, whose actions are ordered so that stopping after any of them does no harm, and
`rounds`, which chooses the actions to send. After it: `rounds`, which plans on with the answers, and the reconciler,
which stores all of them in the mirror.

The invariants: the stages of a plan (creates, patches, deletes, scheduling gates, statuses) follow each other; if a
replica of the set is deleted as a whole, its parts are deleted in the order of the plan; a write changes only the
object that the plan has seen (uid) and, where it matters, only as the plan has seen it (resourceVersion).

The results of a write, and what follows:

    applied    The answer is the newest state of the object.
    conflict   Another client was faster (Conflict, NotFound, AlreadyExists). The object is fetched; the next pass plans
               again.
    rejected   The cluster does not allow it (Forbidden, Invalid, ...). All other writes are still sent, but no more of
               this verb and kind once one is forbidden or many have been rejected.
    unknown    No answer (Unavailable), or none at this time (Unauthorized, Throttled). Nothing more is sent. To send it
               again does no harm: names follow from what exists, and all else has preconditions. Only for deletes and
               for creates of pods the next pass must learn the result before it plans (`needs_confirmation`).
    skipped    It was not sent, for one of these reasons or because it is backed off (`rejected_writes`).
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
from rollouts.cluster.deletion import delete_object, fetch_deletion
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

RESOURCES: Final[Mapping[Kind, Resource]] = {
    Kind.SET: PODCLIQUESETS,
    Kind.CLIQUE: PODCLIQUES,
    Kind.GROUP: PODCLIQUESCALINGGROUPS,
    Kind.GANG: PODGANGS,
    Kind.POD: PODS,
    Kind.SERVICE: SERVICES,
}

WRITER_THREADS: Final = 16
# A round that would take longer ends between two writes, and the next pass continues: far within the time limits.
MAX_WRITES_PER_PASS: Final = 512
MAX_WRITE_SECONDS: Final = 8.0
MAX_REJECTIONS_PER_KIND: Final = 16  # of one verb and kind, before no more of them are sent
_WRITES_PER_BATCH: Final = 8 * WRITER_THREADS  # between two checks of the time

ObjectKey = tuple[Kind, str]
UnconfirmedWrite = tuple[str, str, str]
"""A write whose result is not known: kind and name of the object, and its uid if it existed before the write."""


class WriteResult(Enum):
    """The result of a write; the module says what follows from each."""

    APPLIED = "Applied"
    CONFLICT = "Conflict"
    REJECTED = "Rejected"
    UNKNOWN = "Unknown"
    SKIPPED = "Skipped"


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """The result of one action, and what the answer shows of the object."""

    action: Action
    result: WriteResult
    current: Obj | None = None  # its current state
    deleted: Obj | None = None  # its last state, or only its name and uid
    error: ClusterError | None = None


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The results of some writes, and what follows from all of them."""

    writes: Sequence[WriteRecord] = ()

    def with_result(self, result: WriteResult) -> list[WriteRecord]:
        """Return the records with this result."""
        return [record for record in self.writes if record.result is result]

    @property
    def failure(self) -> ClusterError | None:
        """The error after which nothing more was sent."""
        return next((record.error for record in self.writes if record.result is WriteResult.UNKNOWN), None)

    @property
    def unconfirmed(self) -> list[Action]:
        """The actions whose result must be known before the next plan, and is not."""
        return [record.action for record in self.with_result(WriteResult.UNKNOWN) if needs_confirmation(record.action)]

    def changes(self) -> Iterator[ObjectChanges]:
        """Yield what the answers show of the objects, by kind, for the mirror."""
        for kind, resource in RESOURCES.items():
            records = [record for record in self.writes if kind_of(record.action) is kind]
            found = [record.current for record in records if record.current is not None]
            gone = [record.deleted for record in records if record.deleted is not None]
            if found or gone:
                yield ObjectChanges(resource, found, gone)


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What the writes were planned on, as far as their preconditions need it."""

    namespace: str
    observed: Observed
    set_resource_version: str  # resourceVersion of the PodCliqueSet


def execute(cluster: ClusterClient, writes: Sequence[Action], context: ExecutionContext) -> Iterator[list[WriteRecord]]:
    """Send writes batch by batch, and yield the answers to each batch.

    Ends early after a write without an answer, after `MAX_WRITES_PER_PASS` writes and after `MAX_WRITE_SECONDS`.
    """
    if not writes:
        return
    sender = _Sender(cluster, context.namespace, _expected_versions(writes, context))
    deadline = time.monotonic() + MAX_WRITE_SECONDS
    for batch in _split_into_batches(writes[:MAX_WRITES_PER_PASS], context.observed):
        if sender.is_stopped or time.monotonic() > deadline:
            return
        yield sender.send_batch(batch)


def is_truncated(writes: Sequence[Action], records: Sequence[WriteRecord]) -> bool:
    """Return whether there were more writes than fit into one pass; no, if it was a missing answer that ended them."""
    return len(records) < len(writes) and not any(record.result is WriteResult.UNKNOWN for record in records)


def resolve_unconfirmed(
    cluster: ClusterClient, namespace: str, unconfirmed: Iterable[UnconfirmedWrite]
) -> ExecutionResult:
    """Fetch the objects of writes whose result is not known; raise the error if the cluster does not answer."""
    sender = _Sender(cluster, namespace, {})
    objects = [Delete(Kind(kind), name, uid, reason="") for kind, name, uid in unconfirmed]
    return ExecutionResult(
        list(_writer_pool(os.getpid()).map(lambda obj: sender.fetch_current(obj, WriteResult.APPLIED, None), objects))
    )


def needs_confirmation(action: Action) -> bool:
    """Return whether no plan may be made before the result of this action is known.

    A delete that the next plan does not know of would be counted twice against the budget. A pod that it does not know
    of would be created twice: the pod's name follows from the pods at its index, and one of those may be gone by then.
    """
    return isinstance(action, Delete) or (isinstance(action, Create) and action.kind is Kind.POD)


def make_unconfirmed_write(action: Action) -> UnconfirmedWrite:
    """Return what a later pass needs to fetch the object of an action."""
    uid = action.uid if isinstance(action, Delete) else ""
    return str(kind_of(action)), name_of(action), uid


def kind_of(action: Action) -> Kind:
    """Return the kind of the object that an action writes."""
    return Kind.POD if isinstance(action, RemoveGate) else action.kind


_VERBS: Final[Mapping[type, str]] = {
    Create: "create",
    Delete: "delete",
    Patch: "patch",
    RemoveGate: "ungate",
    WriteStatus: "status",
}


def write_key_of(action: Action) -> str:
    """Return the key of a write, unique within a workload: verb, kind and name."""
    return f"{_VERBS[type(action)]} {kind_of(action)} {name_of(action)}"


def name_of(action: Action) -> str:
    """Return the name of the object that an action writes."""
    if isinstance(action, Create):
        name: str = action.manifest["metadata"]["name"]
        return name
    return action.pod if isinstance(action, RemoveGate) else action.name


# ---- batches


def _split_into_batches(actions: Sequence[Action], observed: Observed) -> Iterator[Sequence[Action]]:
    """Split a plan into batches that are sent one after the other, the actions of a batch all at once."""
    for _, members in groupby(actions, type):
        stage = [*members]
        deletes = [action for action in stage if isinstance(action, Delete)]
        for batch in compute_delete_batches(deletes, observed) if deletes else [stage]:
            for start in range(0, len(batch), _WRITES_PER_BATCH):
                yield batch[start : start + _WRITES_PER_BATCH]


def compute_delete_batches(deletes: Sequence[Delete], observed: Observed) -> list[list[Delete]]:
    """Return which deletes are sent together: replicas of the set side by side, each in its own order.

    A replica that is deleted as a whole must look outdated until its last part is deleted, so its parts are deleted one
    by one. Pods of one clique and one template are interchangeable, and are deleted at once. Example, replicas 0 and 1
    of a set whose pods a are outdated and whose clique b is not: [b0 b1] [a0 a0' a1 a1'].
    """
    batches_by_replica: dict[object, list[list[Delete]]] = {}
    last_group: dict[object, object] = {}
    for delete, (replica, group) in zip(deletes, _classify_deletes(deletes, observed), strict=True):
        batches = batches_by_replica.setdefault(replica, [])
        if group is not None and last_group.get(replica) == group:
            batches[-1].append(delete)
        else:
            batches.append([delete])
        last_group[replica] = group
    side_by_side = zip_longest(*batches_by_replica.values(), fillvalue=[])
    return [[delete for batch in batches for delete in batch] for batches in side_by_side]


def _classify_deletes(deletes: Iterable[Delete], observed: Observed) -> Iterator[tuple[object, object]]:
    """Yield for each delete its replica of the set and, for a pod, which other pods it may be deleted with."""
    cliques = {clique.name: clique.replica for clique in observed.cliques}
    pods = {pod.uid: pod for pod in observed.pods}
    objects: list[Group | Gang | Service] = [*observed.groups, *observed.gangs, *observed.services]
    others = {obj.uid: obj.replica for obj in objects}
    for delete in deletes:
        if delete.kind is Kind.POD:
            pod = pods[delete.uid]
            yield cliques.get(pod.clique, pod.clique), (pod.clique, pod.template_hash)
        elif delete.kind is Kind.CLIQUE:
            yield cliques[delete.name], None
        else:
            yield others[delete.uid], None


def _expected_versions(actions: Sequence[Action], context: ExecutionContext) -> dict[ObjectKey, str]:
    """Return the resourceVersions that are preconditions: of objects whose status is written, and of unready pods.

    To delete a pod that is not Ready costs no budget. If the pod has become Ready since the mirror saw it, its delete
    would cost budget that the plan has not counted.
    """
    wanted = {(action.kind, action.name) for action in actions if isinstance(action, WriteStatus)}
    known = {(Kind.CLIQUE, clique.name): clique.resource_version for clique in context.observed.cliques}
    known |= {(Kind.GROUP, group.name): group.resource_version for group in context.observed.groups}
    known |= {(Kind.GANG, gang.name): gang.resource_version for gang in context.observed.gangs}
    versions = {version: known.get(version, context.set_resource_version) for version in wanted}
    deleted = {action.uid for action in actions if isinstance(action, Delete) and action.kind is Kind.POD}
    idle = (pod for pod in context.observed.pods if pod.uid in deleted and not pod.ready)
    return versions | {(Kind.POD, pod.name): pod.resource_version for pod in idle}


# ---- writes


class _Sender:
    """Sends the writes of one round."""

    def __init__(self, cluster: ClusterClient, namespace: str, versions: dict[ObjectKey, str]) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._versions = versions  # updated by the patches of this round
        self._stopped = threading.Event()
        self._rejections: Counter[tuple[type, Kind]] = Counter()

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more may be sent."""
        return self._stopped.is_set()

    def send_batch(self, actions: Sequence[Action]) -> list[WriteRecord]:
        """Send some writes at once and return their answers."""
        if len(actions) == 1:
            answers = [self._attempt(actions[0])]
        else:
            answers = list(_writer_pool(os.getpid()).map(self._attempt, actions))
        for answer in answers:
            if isinstance(answer.action, Patch) and answer.result is WriteResult.APPLIED and answer.current is not None:
                key = (answer.action.kind, answer.action.name)
                self._versions[key] = answer.current["metadata"]["resourceVersion"]
        return answers

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
        deletion = delete_object(
            self._cluster,
            RESOURCES[action.kind],
            action.name,
            namespace=self._namespace,
            uid=action.uid,
            resource_version=self._versions.get((action.kind, action.name)),
            propagation="Background",
        )
        return WriteRecord(action, WriteResult.APPLIED, deletion.current, deletion.gone)

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
        """Remove our scheduling gate from a pod: it is the first one unless others have changed the list."""
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

    def _remove_gate_at(self, action: RemoveGate, index: int) -> Obj:
        gate = f"/spec/schedulingGates/{index}"
        operations = [
            # Not a test: the API server answers another uid with a conflict, a failed test only with Invalid.
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

    def fetch_current(self, action: Action, result: WriteResult, error: ClusterError | None) -> WriteRecord:
        """Fetch the object of an action as it is now."""
        resource, uid = RESOURCES[kind_of(action)], "" if isinstance(action, Create) else action.uid
        fetched = fetch_deletion(self._cluster, resource, name_of(action), namespace=self._namespace, uid=uid)
        if isinstance(error, AlreadyExists) and _has_other_owner(fetched.current, action):
            taken = f"{error}; the existing object has another owner"
            error, result = AlreadyExists(taken, code=error.code, reason=error.reason), WriteResult.REJECTED
        return WriteRecord(action, result, fetched.current, fetched.gone, error)


def replace_whole(patch: Mapping[str, Any], current: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return a merge patch in which the field at the path replaces the current one.

    A merge patch keeps what it does not name, so what must be removed is named as null:

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


def _has_other_owner(found: Obj | None, action: Action) -> bool:
    """Return whether the name of an object to be created belongs to an object that no owner of that name has or had."""
    if found is None or not isinstance(action, Create):
        return False
    wanted = {(owner["kind"], owner["name"]) for owner in action.manifest["metadata"]["ownerReferences"]}
    owners = {(owner["kind"], owner["name"]) for owner in found["metadata"].get("ownerReferences") or ()}
    return wanted.isdisjoint(owners)


@cache
def _writer_pool(_pid: int) -> ThreadPoolExecutor:
    """Return the writer threads of this process; they start on first use, after the fork."""
    return ThreadPoolExecutor(WRITER_THREADS, thread_name_prefix="writer")
