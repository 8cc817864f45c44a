"""Workloads by the thousand and one with a thousand pods, put into the mirror as the watcher would hear of them.

Only the cluster is made up: the rows are written by `mirror` and read by what is tested.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rollouts import mirror, models
from rollouts.cluster import Obj, Resource
from rollouts.cluster.resources import NODES, PODCLIQUES, PODCLIQUESCALINGGROUPS, PODCLIQUESETS, PODS
from rollouts.engine.manifest.parsing import ParseFailure, parse_workload
from rollouts.engine.model import names
from rollouts.engine.model.hashing import compute_generation_hash, compute_template_hash
from rollouts.engine.model.workload import Workload
from rollouts.selectors.pod_totals import CACHE

CLUSTER: Final = "sandbox"
NAMESPACE: Final = "default"
CREATED: Final = "2026-01-02T03:04:05Z"
OLD_HASH: Final = "old"

# What the controller writes on a workload in each state.
CONDITIONS: Final[dict[str, list[Obj]]] = {
    "settled": [{"type": "Progressing", "status": "False", "reason": "Complete"}],
    "progressing": [{"type": "Progressing", "status": "True", "reason": "UpdateInProgress"}],
    "waiting": [{"type": "Progressing", "status": "False", "reason": "AwaitingDeletion"}],
    "needs-attention": [
        {"type": "Progressing", "status": "True", "reason": "UpdateInProgress"},
        {"type": "UpdateStuck", "status": "True", "reason": "SurgeUnschedulable", "message": "No room."},
    ],
}
_versions: Final = itertools.count(1000)


def make_cluster(name: str = CLUSTER) -> models.Cluster:
    """Return the row of a cluster that has been listed."""
    # Here workloads of one name have one uid, which in a cluster no two have that are not the same.
    CACHE.clear()
    row = mirror.ensure_cluster(name, "sandbox")
    row.complete = True
    row.save()
    return row


def clique(name: str, replicas: int = 1, **fields: Any) -> Obj:
    """Return a clique of a template."""
    pod = {"containers": [{"name": "main", "image": f"example/{name}:v1"}]}
    return {"name": name, "spec": {"roleName": name, "replicas": replicas, "minAvailable": 1, "podSpec": pod}, **fields}


def group(name: str, cliques: Sequence[str], replicas: int = 1, **fields: Any) -> Obj:
    """Return a scaling group of a template."""
    return {"name": name, "cliqueNames": [*cliques], "replicas": replicas, "minAvailable": 1, **fields}


def podcliqueset(
    name: str, *, state: str = "settled", cliques: Sequence[Obj] = (), groups: Sequence[Obj] = (), **fields: Any
) -> Obj:
    """Return a PodCliqueSet as the cluster has it, with the conditions of a state."""
    template: Obj = {"cliques": [*cliques] or [clique("main")]}
    if groups:
        template["podCliqueScalingGroups"] = [*groups]
    told: Obj = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": _metadata(name, fields.pop("namespace", NAMESPACE), labels=fields.pop("labels", {})),
        "spec": {"replicas": 1, "template": template, **fields},
    }
    hash_now = compute_generation_hash(parse(told))
    told["status"] = {"observedGeneration": 1, "currentGenerationHash": hash_now, "conditions": CONDITIONS[state]}
    return told


def parse(manifest: Obj) -> Workload:
    """Return the workload of a manifest that can be read."""
    workload = parse_workload(manifest)
    assert not isinstance(workload, ParseFailure), workload
    return workload


def store_sets(row: models.Cluster, sets: Iterable[Obj]) -> None:
    """Put PodCliqueSets into the mirror."""
    mirror.store(row, PODCLIQUESETS, sets)


def store_fleet(row: models.Cluster, count: int) -> None:
    """Put so many workloads into the mirror, in all states, in ten namespaces, with labels."""
    states = itertools.cycle(CONDITIONS)
    tiers = itertools.cycle(("gold", "silver"))
    store_sets(
        row,
        [
            podcliqueset(
                f"w-{number:04}",
                state=next(states),
                namespace=f"team-{number % 10}",
                labels={"tier": next(tiers), "app": f"a{number}"},
                updateStrategy={"type": "OnDelete"} if number % 5 == 0 else {},
            )
            for number in range(count)
        ],
    )


def store_parts(row: models.Cluster, manifest: Obj, *, outdated: Iterable[int] = (), surge: bool = False) -> None:
    """Put everything that a workload consists of into the mirror, all of it available.

    The replicas of the set that are outdated have pods of an older template; with surge there is one pod more than
    wanted in each clique of the first replica that is in no group.
    """
    parts = _Parts(manifest, frozenset(outdated), surge=surge)
    store_sets(row, [manifest])
    for resource, objects in parts.objects().items():
        mirror.store(row, resource, objects)


def scale_set(row: models.Cluster, manifest: Obj, replicas: int) -> None:
    """Change only the desired replicas."""
    metadata = {**manifest["metadata"], "resourceVersion": str(next(_versions))}
    store_sets(row, [{**manifest, "metadata": metadata, "spec": {**manifest["spec"], "replicas": replicas}}])


def big_workload(name: str = "big", pods: int = 1000) -> Obj:
    """Return a workload of so many pods, at all levels: half of them in a clique by itself, half in groups."""
    cliques = [clique("router", 10), clique("leader", 1), clique("worker", 4)]
    return podcliqueset(
        name, cliques=cliques, groups=[group("decode", ["leader", "worker"], 2)], replicas=pods // 20, state="waiting"
    )


def store_nodes(row: models.Cluster, count: int) -> None:
    """Put nodes into the mirror."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8", "nvidia.com/gpu": "8"}}
    mirror.store(
        row, NODES, [{"metadata": _metadata(f"node-{n:04}", ""), "spec": {}, "status": ready} for n in range(count)]
    )


def make_history(row: models.Cluster, manifest: Obj, rollouts: int, steps: int = 1) -> list[models.Rollout]:
    """Record rollouts with their steps, and the last revisions."""
    metadata = manifest["metadata"]
    whose = {
        "cluster": row.name,
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "workload_uid": metadata["uid"],
    }
    began = datetime(2026, 1, 2, tzinfo=UTC)
    made = models.Rollout.objects.bulk_create(
        models.Rollout(
            **whose,
            to_hash=f"hash-{number}",
            from_hash=f"hash-{number - 1}" if number else "",
            strategy="RollingUpdate",
            started=began + timedelta(hours=number),
            ended=began + timedelta(hours=number, minutes=5),
            outcome="Complete",
        )
        for number in range(rollouts)
    )
    models.Step.objects.bulk_create(
        models.Step(
            rollout=rollout, at=rollout.started, reason="PodsCreated", text=f"{number}", fingerprint=f"{number}"
        )
        for rollout in made
        for number in range(steps)
    )
    models.Revision.objects.bulk_create(
        models.Revision(
            **whose,
            number=number + 1,
            generation_hash=f"hash-{number}",
            template=manifest["spec"]["template"],
            created=began,
        )
        for number in range(min(rollouts, 20))
    )
    return made


class _Parts:
    """Makes the objects that a workload consists of."""

    def __init__(self, manifest: Obj, outdated: frozenset[int], *, surge: bool) -> None:
        self._workload = parse(manifest)
        self._uid = manifest["metadata"]["uid"]
        self._namespace = manifest["metadata"]["namespace"]
        self._outdated = outdated
        self._surge = surge
        self._hashes = {one.name: compute_template_hash(one, "") for one in self._workload.cliques}
        self._cliques: list[Obj] = []
        self._groups: list[Obj] = []
        self._pods: list[Obj] = []

    def objects(self) -> dict[Resource, list[Obj]]:
        for replica in range(self._workload.replicas):
            self._add_replica(replica)
        return {PODCLIQUESCALINGGROUPS: self._groups, PODCLIQUES: self._cliques, PODS: self._pods}

    def _add_replica(self, replica: int) -> None:
        members = {name for one in self._workload.groups for name in one.clique_names}
        owner = ("PodCliqueSet", self._uid)
        for one in self._workload.cliques:
            if one.name not in members:
                extra = int(self._surge and replica == 0)
                self._add_clique(f"{self._workload.name}-{replica}-{one.name}", one.name, replica, owner, extra=extra)
        for group in self._workload.groups:
            name = f"{self._workload.name}-{replica}-{group.name}"
            spec = {"replicas": group.replicas, "minAvailable": group.min_available}
            self._groups.append(
                {"metadata": _metadata(name, self._namespace, labels=self._labels(replica), owner=owner), "spec": spec}
            )
            self._add_parts(name, group.clique_names, group.replicas, replica)

    def _add_parts(self, group: str, cliques: Sequence[str], replicas: int, replica: int) -> None:
        for index, clique in itertools.product(range(replicas), cliques):
            labels = {names.GROUP: group, names.GROUP_REPLICA_INDEX: str(index)}
            owner = ("PodCliqueScalingGroup", f"uid-{group}")
            self._add_clique(f"{group}-{index}-{clique}", clique, replica, owner, labels=labels)

    def _add_clique(
        self,
        name: str,
        template: str,
        replica: int,
        owner: tuple[str, str],
        *,
        labels: dict[str, str] | None = None,
        extra: int = 0,
    ) -> None:
        wanted = next(one for one in self._workload.cliques if one.name == template)
        current = {names.TEMPLATE_HASH: self._hashes[template]}
        own = {**self._labels(replica), **(labels or {}), **current}
        self._cliques.append(
            {
                "metadata": _metadata(name, self._namespace, labels=own, owner=owner),
                "spec": {"replicas": wanted.replicas, "minAvailable": wanted.min_available},
            }
        )
        self._pods += self._make_pods(name, wanted.replicas + extra, replica, current)

    def _make_pods(self, clique: str, count: int, replica: int, current: dict[str, str]) -> Iterator[Obj]:
        shown = {names.TEMPLATE_HASH: OLD_HASH} if replica in self._outdated else current
        for index in range(count):
            labels = {**self._labels(replica), **shown, names.CLIQUE: clique, names.POD_INDEX: str(index)}
            yield {
                "metadata": _metadata(
                    f"{clique}-{index:05}", self._namespace, labels=labels, owner=("PodClique", f"uid-{clique}")
                ),
                "spec": {"nodeName": f"node-{index % 10:04}", "containers": [{"name": "main", "image": "example:v1"}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            }

    def _labels(self, replica: int) -> dict[str, str]:
        return {
            names.MANAGED_BY: names.OPERATOR,
            names.PART_OF: self._workload.name,
            names.REPLICA_INDEX: str(replica),
        }


def _metadata(
    name: str, namespace: str, *, labels: dict[str, str] | None = None, owner: tuple[str, str] | None = None
) -> Obj:
    told: Obj = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "generation": 1,
        "resourceVersion": str(next(_versions)),
        "creationTimestamp": CREATED,
        "labels": labels or {},
    }
    if owner is not None:
        kind, uid = owner
        reference = {"apiVersion": "grove.io/v1alpha1", "kind": kind, "name": "any", "uid": uid, "controller": True}
        told["ownerReferences"] = [reference]
    return told
