"""Passes that are cut off or killed at a write, for every write: the end is the same and nothing is recorded twice.

Each case is a small set in its own namespace, which is deployed and updated; all cases run side by side, since most of
the time is spent waiting for pods. After an interruption a pass follows at once, over a mirror that has nothing yet of
what the interrupted pass did.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from rollouts import mirror
from rollouts.cluster import ClusterClient, Obj
from rollouts.cluster.resources import EVENTS, NAMESPACES, PODCLIQUESETS, PODS
from rollouts.models import Revision, Rollout, Step, Workload
from tests.controller.interruptions import Interrupted, Way, is_first_time
from tests.controller.loop import Loop, observe
from tests.controller.small_set import change_image
from tests.deploy.manifests import REMOVED
from tests.engine.manifests import small

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]

PODS_WANTED: Final = 3
# Both are only reached when something is broken: a round is quick where the pods are slow.
ROUNDS: Final = 400
SECONDS: Final = 60.0
ONE_CLIQUE: Final = {
    "spec.replicas": 1,
    "spec.template.podCliqueScalingGroups": REMOVED,
    "spec.template.cliques.2": REMOVED,
    "spec.template.cliques.1": REMOVED,
}


@dataclass(slots=True)
class Case:
    """A set, how it is interrupted, and how far it has come."""

    loop: Loop  # as the controller sees it
    outside: Loop  # as everybody else does
    interrupted: Interrupted
    is_updating: bool = False
    is_done: bool = False
    fewest: list[int] = field(default_factory=list)

    def look(self, stored: Obj, pods: Sequence[Obj]) -> None:
        """Look from outside: update the set once it is deployed, then count the serving pods until the update ends."""
        status, generation = stored.get("status") or {}, stored["metadata"]["generation"]
        conditions = {one["type"]: one["reason"] for one in status.get("conditions") or ()}
        is_complete = conditions.get("Progressing") == "Complete" and status["observedGeneration"] == generation
        if self.is_updating:
            serving = [pod for pod in pods if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]
            self.fewest.append(len(serving))
            self.is_done = is_complete and {pod["spec"]["containers"][0]["image"] for pod in pods} == {"two"}
        elif is_complete:
            self.is_updating = True
            change_image(self.outside, "two")

    def step(self) -> None:
        """Run a pass, and if it was interrupted the next one at once."""
        before = self.interrupted.interruptions
        with self.interrupted.one_process():
            self.loop.take_pass()
        if self.interrupted.interruptions > before:
            with self.interrupted.one_process():
                self.loop.take_pass()


def is_ready(pod: Obj) -> bool:
    """Return whether a pod is Ready."""
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or ())


def begin(cluster: ClusterClient, name: str, way: Way, is_due: Callable[[int, str], bool]) -> Case:
    """Create the set of a case."""
    cluster.create(NAMESPACES, {"metadata": {"name": name}})
    cluster.create(PODCLIQUESETS, small({"metadata.namespace": name, **ONE_CLIQUE}))
    interrupted = Interrupted(cluster, way, is_due)
    return Case(Loop(interrupted.as_cluster(), name, "chat"), Loop(cluster, name, "chat"), interrupted)


def run(cluster: ClusterClient, cases: Sequence[Case]) -> None:
    """Run all cases to their end and two passes further, all on the same cluster."""
    row, deadline = mirror.ensure_cluster("here"), time.monotonic() + SECONDS
    namespaces = {case.loop.namespace for case in cases}
    for number in itertools.count():
        if number > ROUNDS and time.monotonic() > deadline:
            pytest.fail(f"not at their end: {[case.loop.namespace for case in cases if not case.is_done]}")
        seen = observe(cluster, row, among=namespaces)
        pods: dict[str, list[Obj]] = {}
        for pod in seen[PODS]:
            pods.setdefault(pod["metadata"]["namespace"], []).append(pod)
        stored = {obj["metadata"]["namespace"]: obj for obj in seen[PODCLIQUESETS]}
        going = [case for case in cases if not case.is_done]
        for case in going or [*cases, *cases]:
            case.step()
        if not going:
            return
        for case in going:
            case.look(stored[case.loop.namespace], pods.get(case.loop.namespace, []))


def check(case: Case) -> None:
    """Check that the end is the same as without an interruption."""
    namespace = case.loop.namespace
    assert min(case.fewest) >= PODS_WANTED - 1, f"{namespace}: {case.fewest}"
    rollouts = list(Rollout.objects.filter(namespace=namespace).order_by("started", "id"))
    assert [row.outcome for row in rollouts] == ["Complete", "Complete"], namespace
    assert Revision.objects.filter(namespace=namespace).count() == 2
    told = Counter(Step.objects.filter(rollout=rollouts[1]).values_list("reason", flat=True))
    once = {"UpdateStarted": 1, "ReplicaSelected": 1, "UpdateEnded": 1, "Outdated": PODS_WANTED}
    assert {reason: told[reason] for reason in once} == once, namespace
    pods = Counter(call for call in case.interrupted.effective if " pods " in call and not call.startswith("patch"))
    assert [*pods.values()] == [1] * 3 * PODS_WANTED, f"{namespace}: {pods}"  # created, deleted, created
    assert Workload.objects.get(namespace=namespace).in_doubt == []
    events = [event["reason"] for event in case.loop.cluster.list(EVENTS, namespace=namespace).items]
    assert all(number == 1 for number in Counter(one for one in events if one.startswith("Update")).values())


def is_number(place: int) -> Callable[[int, str], bool]:
    """Return a predicate that interrupts the write with this number."""
    return lambda number, _call: number == place


@pytest.mark.database
@pytest.mark.parametrize("way", [*Way], ids=lambda way: way.name)
def test_every_write_interrupted_once(cluster: ClusterClient, namespace: str, way: Way) -> None:
    case = begin(cluster, f"{namespace}-x", way, is_first_time())
    run(cluster, [case])
    assert case.interrupted.interruptions >= 15
    check(case)


ON_SANDBOX: Final = pytest.mark.parametrize("target", ["sandbox"], indirect=True)


@ON_SANDBOX
@pytest.mark.slow
@pytest.mark.parametrize("way", [Way.CUT_AFTER, Way.KILLED_AFTER], ids=lambda way: way.name)
def test_one_write_interrupted_whichever_it_is(cluster: ClusterClient, namespace: str, way: Way) -> None:
    calm = begin(cluster, f"{namespace}-calm", way, lambda _number, _call: False)
    run(cluster, [calm])
    check(calm)
    places = range(1, len(calm.interrupted.writes) + 1)
    cases = [begin(cluster, f"{namespace}-{place}", way, is_number(place)) for place in places]
    run(cluster, cases)
    for case in cases:
        check(case)
