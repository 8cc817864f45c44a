"""Every stored or observed input yields a plan: odd templates, odd statuses, objects that contradict each other.

A set may have been stored without a webhook, and any user may write a status or a label. Unusable objects are reported
or ignored; they raise nothing and are never deleted.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollouts.engine.manifest.parsing import parse_workload
from rollouts.engine.manifest.references import MAX_PODS
from rollouts.engine.model.actions import Delete, Kind
from rollouts.engine.model.observed import Observed
from rollouts.engine.model.workload import Strategy, Workload
from rollouts.engine.plan.planner import plan
from rollouts.engine.simulation.simulate import SimulationEnd, simulate
from rollouts.engine.tree.layout import make_layout
from rollouts.engine.tree.tree_builder import build_tree
from tests.engine.manifests import JSON, damaged, small
from tests.engine.simulated import Cluster, clique, group, settled, workload
from tests.thoroughness import examples

often = settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Statuses with the types that the custom resources ask for, and anything at all in them.
TEXTS = st.sampled_from(["", "x", "True", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "yesterday", "w-0-a"])
NUMBERS = st.integers(-3, 2**31 - 1)
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["MinAvailableBreached", "PodCliqueScheduled", "UpdateStuck", "x"]), "status": TEXTS},
        optional={"lastTransitionTime": TEXTS, "reason": TEXTS, "message": TEXTS},
    ),
    max_size=3,
)
PROGRESS = st.fixed_dictionaries(
    {},
    optional={
        "updateStartedAt": TEXTS,
        "updateEndedAt": TEXTS,
        "podCliqueSetGenerationHash": TEXTS,
        "updatingReplicas": st.lists(st.fixed_dictionaries({"replicaIndex": NUMBERS}), max_size=3),
        "readyPodsSelectedToUpdate": st.fixed_dictionaries({}, optional={"current": TEXTS | st.lists(TEXTS)}),
        "readyReplicaIndicesSelectedToUpdate": st.fixed_dictionaries({}, optional={"current": st.lists(NUMBERS)}),
        "updatedPodCliquesCount": NUMBERS,
    },
)
STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "conditions": CONDITIONS,
        "updateProgress": st.none() | PROGRESS,
        "rollingUpdateProgress": PROGRESS,
        "currentGenerationHash": TEXTS,
        "currentPodCliqueSetGenerationHash": TEXTS,
        "replicas": NUMBERS,
        "somebody's own": JSON,
    },
)


@often
@given(damaged())
def test_a_workload_of_any_manifest_that_can_be_read_is_planned(manifest: Any) -> None:
    parsed = parse_workload(manifest)
    if isinstance(parsed, Workload):
        few = replace(parsed, replicas=min(parsed.replicas, 2))
        cluster = Cluster(few)
        for _ in range(4):
            cluster.step()
        simulate(few, cluster.world.observed(), few)


@cache
def _running(strategy: Strategy) -> Cluster:
    parts = (clique("a", 2, 1), clique("l", 1), group("g", ("l",), 2))
    return settled(workload(*parts, replicas=2, strategy=strategy))


def running(strategy: Strategy) -> Cluster:
    """Return a small set all running under a strategy."""
    return _running(strategy).fork()


@often
@given(st.sampled_from(list(Strategy)), st.data())
def test_no_status_raises(strategy: Strategy, data: st.DataObject) -> None:
    cluster = running(strategy)
    seen = cluster.world.observed()
    odd = replace(
        seen,
        status=data.draw(STATUSES),
        cliques=tuple(replace(one, status=data.draw(STATUSES)) for one in seen.cliques[:2]) + seen.cliques[2:],
        groups=tuple(replace(one, status=data.draw(STATUSES)) for one in seen.groups),
    )
    cluster.begin_from(odd)
    cluster.update()
    for _ in range(4):
        cluster.step()


ODD_POD_SPECS = [
    {"resources": "x"},
    {"resources": {"requests": {"cpu": "much"}}},
    {"resources": {"requests": ["cpu"]}},
    {"resources": {"requests": {"cpu": None, "memory": True}, "limits": 7}},
    {"env": []},
    {"env": None},
]


@pytest.mark.parametrize("odd", ODD_POD_SPECS, ids=str)
def test_what_a_container_asks_for_may_be_nonsense(odd: dict[str, Any]) -> None:
    manifest = small({f"spec.template.cliques.0.spec.podSpec.containers.0.{name}": odd[name] for name in odd})
    parsed = parse_workload(manifest)
    assert isinstance(parsed, Workload)
    assert simulate(parsed, Observed(), parsed).end is SimulationEnd.DONE


def test_whoever_scales_a_component_beyond_all_clusters_gets_what_a_cluster_can_hold() -> None:
    cluster = running(Strategy.ROLLING_RECREATE)
    for kind, name in ((Kind.CLIQUE, "w-0-a"), (Kind.GROUP, "w-1-g")):
        cluster.world.scale(kind, name, 2**31 - 1)
    shape = make_layout(cluster.workload)
    tree = build_tree(shape, cluster.world.observed())
    assert tree.replicas[0].cliques[0].wanted == tree.replicas[1].groups[0].wanted == MAX_PODS


INDICES = st.integers(-2, 4)
NAMES = st.sampled_from(["w-0-a", "w-1-a", "w-0-g", "w-0-g-0-l", "w-0-g-1-l", "w-9-a", "w-0", "x", "", "w-0-a-abcde"])
TEMPLATES = st.sampled_from(["a", "l", "g", "unknown", ""])


def drawn(one: Any, draw: Any) -> Any:
    """Return an object with some of what says where it belongs made another."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        "name": NAMES,
        "replica": INDICES,
        "index": INDICES,
        "group_replica": INDICES,
        "template": TEMPLATES,
        "clique": NAMES,
        "group": NAMES,
        "template_hash": st.sampled_from(["", "x"]),
        "replicas": st.integers(-3, 5),
        "template_replicas": st.none() | st.integers(-3, 5),
        "leaving": st.booleans(),
        "phase": st.sampled_from(["", "Failed", "Succeeded", "Unknown"]),
        "node": st.sampled_from(["", "elsewhere"]),
        "created": st.sampled_from([0.0, 2e9]),
        "template_keys": st.sampled_from([("labels.x",), ("x",), (".",), ("annotations.",)]),
    }
    own = [name for name in fields if hasattr(one, name)]
    return replace(one, **{name: draw(fields[name]) for name in draw(st.sets(st.sampled_from(own), max_size=3))})


@often
@given(st.sampled_from(list(Strategy)), st.data())
def test_objects_that_contradict_each_other_are_planned_around_and_strangers_left_alone(
    strategy: Strategy, data: st.DataObject
) -> None:
    cluster = running(strategy)
    seen = cluster.world.observed()

    def some(things: tuple[Any, ...]) -> tuple[Any, ...]:
        chosen = data.draw(st.lists(st.sampled_from(things), max_size=3))
        return (*things, *(replace(drawn(one, data.draw), uid=f"odd-{at}") for at, one in enumerate(chosen)))

    odd = Observed(seen.status, *map(some, (seen.cliques, seen.groups, seen.gangs, seen.services, seen.pods)))
    planned = plan(cluster.workload, odd, cluster.world.now)
    strangers = {name for name, _ in planned.strangers}
    there: list[Any] = [*seen.cliques, *seen.groups, *seen.gangs, *seen.services, *seen.pods]
    known = {one.name for one in there}
    deleted = {one.name for one in planned.actions if isinstance(one, Delete)}
    assert not deleted & (strangers - known)
