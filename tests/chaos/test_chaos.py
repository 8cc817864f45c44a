"""Rollouts of several workloads while processes are killed, connections cut and requests rejected, again and again.

Afterwards the test checks every write to the cluster: no budget broken, nothing deleted that should have stayed,
nothing created twice, no surge left behind, every workload settled. `CHAOS_SECONDS` sets the duration and `CHAOS_SEED`
the seed, which is printed with the counts.
"""

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from rollouts.cluster import ClusterError, Obj
from rollouts.cluster.resources import PODCLIQUESETS, PODS
from rollouts.engine.model import names
from tests.chaos.etcd import REMEMBERING, read_events
from tests.chaos.mischief import USUAL_SHARE, Mischief
from tests.chaos.proxy import Badness, running_proxy
from tests.controlling import Controller, running_controller
from tests.scenarios.running_clusters import running_real_cluster
from tests.scenarios.scene import is_leaving
from tests.scenarios.stage import Stage, clique, group, podcliqueset, staged
from tests.scenarios.witness import Event, RuleChecker, replay

SECONDS = float(os.environ.get("CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("CHAOS_SEED", "4"))
SECONDS_TO_CONVERGE = 180.0
NODES = 8
# Short, so that another worker takes over the keys of a killed one during the run; long enough that a request, which
# times out after a sixth of it, gets its response on a busy machine too.
LEASE_SECONDS = "18"
BY_HAND = "by-hand"

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.apiserver, pytest.mark.timeout(SECONDS + 480)]


def workloads() -> list[Obj]:
    """Return a workload of each kind."""
    parts = (clique("a", 3, 1), clique("l", 1), clique("k", 2, 1), group("g", ("l", "k"), 2, 1))
    surging = (clique("a", 4, 1, (0, 1)), clique("l", 1), group("g", ("l",), 3, 2, (0, 1)))
    return [
        podcliqueset(*parts, name="one-by-one", replicas=2),
        podcliqueset(*surging, name="surging", strategy="RollingUpdate"),
        podcliqueset(clique("a", 10, 1, ("25%", "25%")), name="quarters", strategy="RollingUpdate"),
        podcliqueset(*parts, name="whole", replicas=3, strategy="ReplicaRecreate", budget=(0, 1)),
        podcliqueset(clique("a", 4, 1), name=BY_HAND, strategy="OnDelete"),
    ]


def test_rollouts_survive_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    badness = Badness(SEED, 0.0)
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(running_real_cluster(*REMEMBERING))
        assert target.server is not None
        proxy, kubeconfig = stack.enter_context(running_proxy(target.server, badness, tmp_path))
        variables = {"RECONCILE_LEASE_SECONDS": LEASE_SECONDS}
        controller = stack.enter_context(
            running_controller(tmp_path / "controller", kubeconfig, workers=2, beats=1, watchers=2, **variables)
        )
        stage = stack.enter_context(staged(target, "chaos"))
        stage.nodes(NODES)
        sets = [stage.create(manifest) for manifest in workloads()]
        mischief = Mischief(controller, proxy, target.server, random.Random(SEED))
        try:
            for name in sets:
                stage.settle(name, SECONDS_TO_CONVERGE)
            badness.share = USUAL_SHARE
            with people_at_work(stage, sets) as edits:
                mischief.go_on(SECONDS)
            mischief.cease()
            started = time.monotonic()
            for name in sets:
                (stage.settle if name == BY_HAND else stage.settle_updated)(name, SECONDS_TO_CONVERGE)
            converged = time.monotonic() - started
            mischief.count_passes()
            recorded = wait_for_history(controller, stage, sets)
        except BaseException:
            print(controller.last_words())  # noqa: T201 (pytest shows it with the failure)
            raise
        finally:
            mischief.cease()
        events = read_events(target.server.etcd_url, stage.namespace)
        killed = stage.witness.killed
    with capsys.disabled():
        tell(mischief, edits, events, converged=converged, requests=proxy.requests)
    for name in sets:
        assert_rules(name, events, killed)
        assert_nothing_was_made_twice(name, events)
        assert_history_is_whole(name, events, recorded)
    assert_only_people_deleted(BY_HAND, events, killed)


@contextlib.contextmanager
def people_at_work(stage: Stage, sets: list[str]) -> Iterator[Counter[str]]:
    """Change templates all the time, sometimes before the last update has ended, and delete pods by hand."""
    over = threading.Event()
    edits: Counter[str] = Counter()
    thread = threading.Thread(target=_work, args=(stage, sets, over, edits), daemon=True)
    thread.start()
    try:
        yield edits
    finally:
        over.set()
        thread.join(30)


def _work(stage: Stage, sets: list[str], over: threading.Event, edits: Counter[str]) -> None:
    chance = random.Random(SEED + 1)
    while not over.wait(chance.uniform(0.2, 1.0)):
        name = chance.choice(sets)
        scene = stage.witness.scene()
        is_through = scene.is_complete(name) and (name == BY_HAND or scene.is_updated(name))
        # While the API server is down no edit is possible.
        with contextlib.suppress(ClusterError):
            if name == BY_HAND and is_through:
                stage.kill(chance.choice(scene.ready(name)))
                edits["pods deleted by hand"] += 1
            if is_through or chance.random() < 0.1:
                stage.change(name)
                edits["templates changed" if is_through else "updates interrupted"] += 1


# --- what must hold ----------------------------------------------------------------------------------------------


def assert_rules(name: str, events: list[Event], killed: set[str]) -> None:
    """Assert that each write of the run kept the budgets and removed no current unit."""
    checker = RuleChecker(name, killed)
    for step in replay(events):
        checker.check(step)


def assert_nothing_was_made_twice(name: str, events: list[Event]) -> None:
    """Assert that no index ever got two pods of one template, unless the test deleted the first by hand."""
    made: Counter[tuple[str, str]] = Counter()
    seen: set[str] = set()
    for event in events:
        metadata = event.obj["metadata"]
        labels = metadata.get("labels") or {}
        if event.resource is PODS and labels.get(names.PART_OF) == name and metadata["uid"] not in seen:
            seen.add(metadata["uid"])
            made[event.obj["spec"]["hostname"], labels[names.TEMPLATE_HASH]] += 1
    twice = {place: number for place, number in made.items() if number > 1}
    assert name == BY_HAND or not twice, twice


def assert_only_people_deleted(name: str, events: list[Event], killed: set[str]) -> None:
    """Assert that under OnDelete only the pods were removed that the test deleted by hand."""
    gone = {
        event.obj["metadata"]["uid"]
        for event in events
        if event.resource is PODS
        and (event.gone or is_leaving(event.obj))
        and (event.obj["metadata"].get("labels") or {}).get(names.PART_OF) == name
    }
    assert gone <= killed, gone - killed


def wait_for_history(controller: Controller, stage: Stage, sets: list[str]) -> list[list[str]]:
    """Return the history once it has the last rollout of each set and all have ended; it follows the status."""
    scene = stage.witness.scene()
    last = {(name, scene.status(name)["currentGenerationHash"]) for name in sets}
    deadline = time.monotonic() + SECONDS_TO_CONVERGE
    while True:
        recorded = read_history(controller)
        is_whole = last <= {(of, to) for of, to, _ in recorded} and all(outcome for _, _, outcome in recorded)
        if is_whole or time.monotonic() > deadline:
            return recorded


def read_history(controller: Controller) -> list[list[str]]:
    """Return the history: set, hash and outcome of each rollout, the oldest first."""
    values = 'Rollout.objects.order_by("started", "pk").values_list("name", "to_hash", "outcome")'
    code = f"import json; from rollouts.models import Rollout; print(json.dumps(list(map(list, {values}))))"
    recorded: list[list[str]] = orjson.loads(controller.manage("shell", "--verbosity", "0", "-c", code))
    return recorded


def assert_history_is_whole(name: str, events: list[Event], recorded: list[list[str]]) -> None:
    """Assert that the history has the first deployment and every update in the set's status once, and ended."""
    statuses = [
        event.obj.get("status") or {}
        for event in events
        if event.resource is PODCLIQUESETS and event.obj["metadata"]["name"] == name
    ]
    adopted = [status["currentGenerationHash"] for status in statuses if status.get("currentGenerationHash")]
    updates = [new for old, new in pairwise(["", *adopted]) if new != old]
    assert sorted(to for of, to, _ in recorded if of == name) == sorted(updates)
    assert all(outcome for of, _, outcome in recorded if of == name)


def tell(mischief: Mischief, edits: Counter[str], events: list[Event], *, converged: float, requests: int) -> None:
    """Print the counts of the run."""
    refused = mischief.proxy.badness.done
    made = {event.obj["metadata"]["uid"] for event in events if event.resource is PODS}
    gone = {event.obj["metadata"]["uid"] for event in events if event.resource is PODS and event.gone}
    updates = {
        (event.obj["metadata"]["name"], (event.obj.get("status") or {}).get("currentGenerationHash"))
        for event in events
        if event.resource is PODCLIQUESETS
    }
    lines = [
        f"chaos: seed {SEED}, {SECONDS:g} s, then {converged:.1f} s until everything was as wanted",
        f"  done to processes and servers  {sum(mischief.done.values())}: {_list(mischief.done)}",
        f"  done to {requests} requests      {sum(refused.values())}: {_list(refused)}",
        f"  done by people                 {sum(edits.values())}: {_list(edits)}",
        f"  passes                         {sum(mischief.passes.values())}: {_list(mischief.passes)}",
        f"  pods made {len(made)}, gone {len(gone)}; templates seen {len(updates)}; writes looked at {len(events)}",
    ]
    print("\n" + "\n".join(lines))  # noqa: T201 (the counts are wanted in the log of CI)


def _list(counted: Counter[str]) -> str:
    return ", ".join(f"{what} {number}" for what, number in counted.most_common())
