"""The picture of a workload: one cell a pod, a place for whatever is missing, and marks that say what each is doing."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone

from rollouts import models
from rollouts.accounts.commands import WorkloadRef
from rollouts.cluster import Obj
from rollouts.models import Pod
from rollouts.selectors.pod_grid import Cell, PodGrid, ReplicaState, build_grid, build_node_grids, compute_progress
from rollouts.selectors.revisions import revision_list
from rollouts.selectors.tree import snapshot_tree
from rollouts.selectors.workload_snapshot import read_snapshot
from tests.api.read import fleet

pytestmark = pytest.mark.django_db


def picture_of(name: str) -> PodGrid:
    """Draw a workload as the mirror has it."""
    place = WorkloadRef(fleet.CLUSTER, fleet.NAMESPACE, name)
    look = read_snapshot(place)
    return build_grid(snapshot_tree(place, look), look.workload)


def cells_in(picture: PodGrid) -> Iterator[Cell]:
    """Return all cells of a picture."""
    for replica in picture.replicas:
        for part in replica.cliques:
            yield from part.cells
        for group in replica.groups:
            for box in group.boxes:
                yield from box.cells


def change_pod(row: models.Cluster, name: str, **fields: Any) -> None:
    """Let the mirror hear something else of a pod."""
    Pod.objects.filter(cluster=row, name=name).update(**fields)


def chat(**fields: Any) -> Obj:
    """Return a workload with all levels: a clique by itself and a group."""
    cliques = [fleet.clique("web", 3), fleet.clique("leader", 1), fleet.clique("worker", 2)]
    return fleet.podcliqueset(
        "chat", cliques=cliques, groups=[fleet.group("decode", ["leader", "worker"], 2)], **fields
    )


def test_every_pod_is_one_cell(row: models.Cluster) -> None:
    fleet.store_parts(row, chat(replicas=2))
    names = [cell.pod for cell in cells_in(picture_of("chat"))]
    assert sorted(names) == sorted(Pod.objects.values_list("name", flat=True))
    assert len(names) == 2 * (3 + 2 * 3)


def test_a_cell_says_its_template_what_it_does_and_where(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    first = picture_of("chat").replicas[0].cliques[0].cells[0]
    assert first.css_classes == "current ready"
    assert first.label.startswith("web 0, current template ")
    assert first.label.endswith(", ready on node-0000")


def test_leaders_are_marked(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    (group,) = picture_of("chat").replicas[0].groups
    assert [["leader" in cell.css_classes for cell in box.cells] for box in group.boxes] == [[True, False, False]] * 2


def test_a_template_of_the_revision_before_is_previous_and_one_before_that_is_older(row: models.Cluster) -> None:
    manifest = chat()
    fleet.store_parts(row, manifest)
    for number, image in ((1, "v-1"), (2, "v0")):
        template = chat()["spec"]["template"]
        template["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = image
        models.Revision.objects.create(
            cluster=row.name,
            namespace=fleet.NAMESPACE,
            name="chat",
            workload_uid=manifest["metadata"]["uid"],
            number=number,
            generation_hash=f"before-{number}",
            template=template,
            created=timezone.now(),
        )
    place = WorkloadRef(fleet.CLUSTER, fleet.NAMESPACE, "chat")
    by_number = {one.number: one.cliques[0].template_hash for one in revision_list(place)}
    change_pod(row, "chat-0-web-00000", template_hash=by_number[1])
    change_pod(row, "chat-0-web-00001", template_hash=by_number[2])
    ages = [cell.css_classes.split()[0] for cell in picture_of("chat").replicas[0].cliques[0].cells]
    assert ages == ["older", "previous", "current"]


@pytest.mark.parametrize(
    ("fields", "doing"),
    [
        ({"leaving": True}, "terminating"),
        ({"ready": False, "node": "", "gated": True}, "gated"),
        ({"ready": False, "node": "", "reason": "Unschedulable"}, "pending"),
        ({"ready": False, "reason": "ContainersNotReady"}, "starting"),
        ({"ready": False, "reason": "CrashLoopBackOff"}, "failing"),
        ({"ready": False, "restarts": 3}, "failing"),
        ({"ready": False, "phase": "Failed"}, "failing"),
    ],
)
def test_what_a_pod_is_doing_is_one_word(row: models.Cluster, fields: dict[str, Any], doing: str) -> None:
    fleet.store_parts(row, chat())
    change_pod(row, "chat-0-web-00001", **fields)
    cell = next(cell for cell in cells_in(picture_of("chat")) if cell.pod == "chat-0-web-00001")
    assert cell.css_classes == f"current {doing}"
    assert doing in cell.label


def test_a_pod_that_is_wanted_and_not_there_leaves_an_empty_place(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    Pod.objects.filter(name__in=("chat-0-web-00001", "chat-0-decode-1-worker-00000")).delete()
    replica = picture_of("chat").replicas[0]
    assert [cell.pod or cell.css_classes for cell in replica.cliques[0].cells] == [
        "chat-0-web-00000",
        "missing",
        "chat-0-web-00002",
    ]
    assert [cell.label for cell in replica.groups[0].boxes[1].cells if not cell.pod] == ["worker 0, missing"]


def test_a_pod_that_leaves_keeps_its_place_until_another_has_it(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    change_pod(row, "chat-0-web-00001", leaving=True)
    cells = picture_of("chat").replicas[0].cliques[0].cells
    assert [cell.pod[-5:] for cell in cells] == ["00000", "00001", "00002"]


def test_a_replica_of_which_every_pod_leaves_is_terminating_and_not_starting(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    Pod.objects.exclude(name="chat-0-web-00001").update(leaving=True)
    assert picture_of("chat").replicas[0].state is ReplicaState.STARTING
    Pod.objects.update(leaving=True)
    assert picture_of("chat").replicas[0].state is ReplicaState.TERMINATING
    Pod.objects.all().delete()
    assert picture_of("chat").replicas[0].state is ReplicaState.STARTING


def test_a_group_replica_that_is_gone_is_an_empty_box_of_its_size(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    Pod.objects.filter(name__startswith="chat-0-decode-1-").delete()
    models.Clique.objects.filter(name__startswith="chat-0-decode-1-").delete()
    (group,) = picture_of("chat").replicas[0].groups
    assert [(box.index, box.is_available) for box in group.boxes] == [(0, True), (1, False)]
    assert Counter(cell.css_classes for cell in group.boxes[1].cells) == {"missing leader": 1, "missing": 2}


def test_a_replica_of_which_nothing_is_there_is_still_shown(row: models.Cluster) -> None:
    fleet.store_sets(row, [chat(replicas=2)])
    replicas = picture_of("chat").replicas
    assert [(one.index, one.state, one.wanted) for one in replicas] == [
        (0, ReplicaState.ABSENT, 9),
        (1, ReplicaState.ABSENT, 9),
    ]


def test_surge_is_marked_and_counted_apart(row: models.Cluster) -> None:
    fleet.store_parts(
        row, fleet.podcliqueset("chat", cliques=[fleet.clique("web", 3)], replicas=2), outdated=[0], surge=True
    )
    picture = picture_of("chat")
    assert [("surge" in cell.css_classes) for cell in picture.replicas[0].cliques[0].cells] == [
        False,
        False,
        False,
        True,
    ]
    assert (picture.surge, picture.outdated) == (1, 4)
    assert picture.replicas[0].sentence == "4 pods available, 3 desired, 4 outdated"
    assert [one.cliques[0].availability for one in picture.replicas] == ["4 available, 3 desired", "3 of 3"]


def test_many_replicas_become_tiles(row: models.Cluster) -> None:
    fleet.store_parts(row, fleet.big_workload(pods=400))
    assert picture_of("big").is_dense
    assert picture_of("big").tile == "wide"
    fleet.store_parts(row, chat(replicas=2))
    assert not picture_of("chat").is_dense


def test_by_node_every_pod_is_where_it_runs_and_those_without_a_node_come_first(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    change_pod(row, "chat-0-decode-1-worker-00001", node="", ready=False)
    place = WorkloadRef(fleet.CLUSTER, fleet.NAMESPACE, "chat")
    nodes = build_node_grids(snapshot_tree(place, read_snapshot(place)))
    assert [(one.name, one.ready, len(one.cells)) for one in nodes] == [
        ("", 0, 1),
        ("node-0000", 5, 5),
        ("node-0001", 2, 2),
        ("node-0002", 1, 1),
    ]
    assert nodes[0].cells[0].label.startswith("replica 0, decode 1, worker 1, current template")


def test_meters_count_units_of_each_component(row: models.Cluster) -> None:
    fleet.store_parts(row, chat(replicas=2), outdated=[1])
    place = WorkloadRef(fleet.CLUSTER, fleet.NAMESPACE, "chat")
    meters = {one.name or "replicas": one for one in compute_progress(snapshot_tree(place, read_snapshot(place)))}
    told = {name: (one.unit, one.updated, one.outdated, one.wanted) for name, one in meters.items()}
    assert told == {
        "replicas": ("replicas", 1, 1, 2),
        "web": ("pods", 3, 3, 6),
        "decode": ("replicas", 2, 2, 4),
    }


def test_what_has_no_place_is_named(row: models.Cluster) -> None:
    fleet.store_parts(row, chat())
    change_pod(row, "chat-0-web-00002", clique="chat-0-elsewhere")
    assert [name for name, _ in picture_of("chat").strangers] == ["chat-0-web-00002"]
