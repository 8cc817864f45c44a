"""Writes for the tests of the executor, and the objects that they refer to."""

from collections.abc import Sequence
from typing import Any, Final, cast

from rollouts.cluster import ClusterClient, Obj
from rollouts.controller.executor import ExecutionContext, ExecutionResult, execute
from rollouts.engine.model.actions import Action, Create, Kind
from rollouts.engine.model.observed import Clique, Observed

NOTHING: Final = Observed()


def result_of(cluster: ClusterClient, actions: Sequence[Action], context: ExecutionContext) -> ExecutionResult:
    """Send writes and return all answers."""
    return ExecutionResult([record for batch in execute(cluster, actions, context) for record in batch])


def observed_clique(obj: Obj, status: Obj | None = None) -> Clique:
    """Return a stored PodClique as the mirror has it, as far as writes need it."""
    metadata = obj["metadata"]
    places = {"template": "c", "replica": 0, "group": "", "group_replica": -1}
    return Clique(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=1,
        created=0.0,
        template_hash="h",
        replicas=1,
        template_replicas=1,
        leaving=False,
        status=status or {},
        **cast("Any", places),
    )


def bare(name: str) -> Create:
    """Return the creation of a pod that has only a name."""
    return Create(Kind.POD, {"metadata": {"name": name, "namespace": "web", "ownerReferences": []}})
