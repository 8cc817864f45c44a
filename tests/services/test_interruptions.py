"""Commands cut off or killed at any write: nothing is half done that a repetition does not mend."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from rollouts.accounts.errors import ClusterUnavailable
from rollouts.accounts.tokens import digest_of
from rollouts.cluster import ClusterClient, Unavailable
from rollouts.engine.manifest.edits import ImageEdit
from rollouts.models import ApiToken, AuditEntry, User
from rollouts.services.apply import workload_apply
from rollouts.services.audit import Caller
from rollouts.services.changes import execute
from rollouts.services.pods import Selection, pods_delete
from rollouts.services.workloads import (
    edit_strategy,
    restart,
    scale,
    set_images,
)
from tests.api.calling import Answer, Api
from tests.controller.interruptions import Killed, Way
from tests.engine.manifests import small
from tests.services.conftest import ONE_REPLICA
from tests.services.stage import Stage

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

WRITES = ("patch_json", "apply", "evict", "delete")
Give = Callable[[Caller, Stage], Any]
COMMANDS: dict[str, Give] = {
    "images": lambda caller, stage: execute(caller, stage.place, set_images([ImageEdit("frontend", "app:v2")])),
    "scale": lambda caller, stage: execute(caller, stage.place, scale(3)),
    "strategy": lambda caller, stage: execute(caller, stage.place, edit_strategy({"type": "OnDelete"})),
    "restart": lambda caller, stage: execute(caller, stage.place, restart(at=0.0)),
    "apply": lambda caller, stage: workload_apply(
        caller, stage.place, small({**ONE_REPLICA, "spec.replicas": 2}), force=True
    ),
}


def interrupt(monkeypatch: pytest.MonkeyPatch, way: Way, number: int) -> None:
    """Interrupt the write with this number; all others pass."""
    count = iter(range(1, 1000))

    def wrap(name: str) -> None:
        write = getattr(ClusterClient, name)

        def interrupted(self: ClusterClient, *args: Any, **kwargs: Any) -> Any:
            is_due = next(count) == number
            if is_due and way in (Way.CUT_BEFORE, Way.KILLED_BEFORE):
                raise Unavailable("the connection was cut") if way is Way.CUT_BEFORE else Killed
            answer = write(self, *args, **kwargs)
            if is_due:
                raise Unavailable("the connection was cut") if way is Way.CUT_AFTER else Killed
            return answer

        monkeypatch.setattr(ClusterClient, name, interrupted)

    for name in WRITES:
        wrap(name)


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize(
    ("name", "number"), [*((name, 1) for name in COMMANDS), ("apply", 2)], ids=[*COMMANDS, "apply in earnest"]
)
def test_a_repetition_ends_where_an_undisturbed_command_does(
    name: str, number: int, way: Way, stage: Stage, caller: Caller
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, way, number)
        with pytest.raises((ClusterUnavailable, Killed)):
            COMMANDS[name](caller, stage)
    results = [entry.result for entry in AuditEntry.objects.order_by("id")]
    is_tried_out = name == "apply" and number == 1
    assert results == ([] if is_tried_out else ["Begun"]) + (
        ["Failed"] if way in (Way.CUT_BEFORE, Way.CUT_AFTER) else []
    )
    COMMANDS[name](caller, stage)
    once = stage.stored()
    # Once more finds nothing to change, and the mirror has what the cluster has.
    COMMANDS[name](caller, stage)
    assert stage.stored()["spec"] == once["spec"]
    assert stage.stored()["metadata"]["generation"] == 2
    stage.observe()
    assert stage.mirrored()["spec"] == once["spec"]


@pytest.mark.parametrize("way", Way)
def test_an_eviction_that_is_interrupted_is_mended_by_the_next(way: Way, deployed: Stage, caller: Caller) -> None:
    execute(caller, deployed.place, edit_strategy({"type": "OnDelete"}))
    execute(caller, deployed.place, set_images([ImageEdit("frontend", "app:v2")]))
    deployed.deploy()
    outdated = {pod["metadata"]["uid"] for pod in deployed.loop.pods() if "frontend" in pod["metadata"]["name"]}
    with pytest.MonkeyPatch.context() as patch:
        interrupt(patch, way, 2)
        try:
            pods_delete(caller, deployed.place, Selection())
        except Killed:
            deployed.observe()  # the watcher brings what the killed process could not
    deployed.observe()
    pods_delete(caller, deployed.place, Selection())
    assert not outdated & {pod["metadata"]["uid"] for pod in deployed.loop.pods()}


# ---- one key, two calls at once


def test_of_two_calls_with_one_key_one_carries_the_command_out(stage: Stage) -> None:
    user = User.objects.create_superuser("ada")
    ApiToken.objects.create(user=user, name="tests", digest=digest_of("grove_ada-0123456789-0123456789"))
    path = f"/api/v1/workloads/{stage.cluster_name}/{stage.namespace}/{stage.name}/restart/"
    answers: list[Answer] = []

    def call() -> None:
        answers.append(Api("grove_ada-0123456789-0123456789").post(path, {}, Idempotency_Key="one"))
        connection.close()

    callers = [threading.Thread(target=call) for _ in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    told = [(answer.status, answer.headers.get("Idempotent-Replayed")) for answer in answers]
    assert told.count((200, None)) == 1, told
    assert set(told) <= {(200, None), (200, "true"), (409, None)}
    assert stage.stored()["metadata"]["generation"] == 2
