"""The status of a clique names the pods that an update has replaced, however its passes end."""

import contextlib
from typing import Any

import pytest

from rollouts.cluster import Forbidden, Obj, Resource
from rollouts.cluster.resources import PODCLIQUES
from rollouts.controller import rounds
from rollouts.engine.model import names
from tests.controller.interruptions import Interrupted, Way, is_first_time
from tests.controller.loop import Loop
from tests.controller.small_set import change_image, images, is_updated

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis")]


def test_a_pass_that_ends_early_names_the_pods_that_it_has_replaced(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "MAX_SECONDS", 0.0)
    assert count_true_selections(loop) > 0


def test_a_pass_whose_write_somebody_forestalls_names_the_pods_that_it_has_replaced(loop: Loop) -> None:
    first_times = is_first_time()
    conflicting = Interrupted(
        loop.cluster, Way.CONFLICT, lambda number, call: call.startswith("create pods") and first_times(number, call)
    )
    loop.cluster = conflicting.as_cluster()
    assert count_true_selections(loop) > 0
    assert conflicting.interruptions >= 3


@pytest.mark.parametrize("way", [*Way], ids=lambda way: way.name)
def test_an_interrupted_pass_loses_no_name_of_a_pod_that_it_has_replaced(loop: Loop, way: Way) -> None:
    first_times, calls = is_first_time(), ("delete pods ", "create pods ", "update podcliques ")
    interrupted = Interrupted(
        loop.cluster, way, lambda number, call: call.startswith(calls) and first_times(number, call)
    )
    loop.cluster = interrupted.as_cluster()
    assert count_true_selections(loop, interrupted) > 0
    assert interrupted.interruptions >= 3


class WithoutStatuses(Interrupted):
    """A cluster that rejects the statuses of PodCliques."""

    def update(self, resource: Resource, obj: Obj, **options: Any) -> Obj:
        if resource == PODCLIQUES:
            self.interruptions += 1
            raise Forbidden('podcliques "chat-0-frontend" is forbidden: not allowed to update podcliques/status')
        return super().update(resource, obj, **options)


def test_an_update_goes_on_though_the_cluster_refuses_the_status_that_names_what_it_replaces(loop: Loop) -> None:
    change_image(loop, "two")
    refusing = WithoutStatuses(loop.cluster, Way.CUT_BEFORE, lambda _number, _call: False)
    loop.cluster = refusing.as_cluster()
    loop.run(lambda: set(images(loop)) == {"two"})
    assert refusing.interruptions > 0
    assert loop.condition("WriteDenied")["reason"] == "Forbidden"


def count_true_selections(loop: Loop, interrupted: Interrupted | None = None) -> int:
    """Update the frontend and return how often its status named pods; it must name all that were replaced so far.

    Pods are named before they are deleted. After an interruption one pass learns what was deleted; from the next pass
    on no existing pod is named.
    """

    def frontends() -> dict[str, str]:
        mine = [pod for pod in loop.pods() if pod["metadata"]["labels"][names.CLIQUE].endswith("frontend")]
        return {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in mine}

    originals, found, former, calm = {*frontends()}, list[int](), 0, 0

    def look() -> None:
        nonlocal former, calm
        interruptions = 0 if interrupted is None else interrupted.interruptions
        former, calm = interruptions, calm + 1 if interruptions == former else 0
        clique = loop.cluster.get(PODCLIQUES, "chat-0-frontend", namespace=loop.namespace)
        progress = (clique.get("status") or {}).get("updateProgress") or {}
        if "updateEndedAt" not in progress:
            selected = progress.get("readyPodsSelectedToUpdate") or {}
            told = [*selected.get("current", ()), *selected.get("completed", ())]
            gone = originals - {*frontends()}
            assert len(told) == len({*told})
            assert originals >= {*told} >= gone
            assert {*told} == gone or calm < 2
            found.append(len(told))

    change_image(loop, "two")
    process = contextlib.nullcontext if interrupted is None else interrupted.one_process
    loop.run(lambda: is_updated(loop, "two"), look, process=process)
    return sum(map(bool, found))
