"""A replica of the set of which only its PodGang is left comes back: on a real API server, with the real processes.

Whoever deletes PodCliques, scaling groups and the Service by hand races with the controller, which makes them anew. So
the worker is frozen until the garbage collector has taken everything else.
"""

from pathlib import Path

import pytest

from rollouts.cluster.resources import PODCLIQUES, PODCLIQUESCALINGGROUPS, PODGANGS, SERVICES
from rollouts.engine.model import names
from tests.controlling import WORKER, running_controller, thaw
from tests.scenarios.changes import mixed
from tests.scenarios.running_clusters import running_real_cluster
from tests.scenarios.scene import Scene, uids
from tests.scenarios.stage import OURS, staged

pytestmark = [pytest.mark.slow, pytest.mark.apiserver]


def kinds_left(scene: Scene, name: str, replica: str) -> set[str]:
    """Return the kinds of the objects that a replica of the set has."""
    return {
        kind.kind
        for kind in OURS
        for obj in scene.all(kind, name)
        if obj["metadata"]["labels"].get(names.REPLICA_INDEX) == replica
    }


def test_a_replica_of_which_only_its_gang_is_left_comes_back(tmp_path: Path) -> None:
    with (
        running_real_cluster() as target,
        running_controller(tmp_path, target.kubeconfig) as controller,
        staged(target, "only a gang is left") as stage,
    ):
        stage.nodes(6)
        name = stage.deploy(mixed("RollingUpdate"))
        assert kinds_left(stage.witness.scene(), name, "1") == {kind.kind for kind in OURS}
        (worker,) = controller.of(WORKER)
        frozen = worker.freeze()
        try:
            stage.witness.killed |= uids(stage.witness.scene().pods(name))
            for kind, owner in ((PODCLIQUES, "w-1-a"), (PODCLIQUESCALINGGROUPS, "w-1-g"), (SERVICES, "w-1")):
                stage.cluster.delete(kind, owner, namespace=stage.namespace)
            stage.witness.wait(lambda scene: kinds_left(scene, name, "1") == {PODGANGS.kind}, "only its gang is left")
        finally:
            thaw(frozen)
        stage.witness.wait(
            lambda scene: kinds_left(scene, name, "1") == {kind.kind for kind in OURS},
            "all of it is there again",
        )
        stage.settle(name)
