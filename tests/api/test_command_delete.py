"""Deleting a workload by HTTP: the answer, the preconditions, and that a repeated command runs once."""

import pytest

from rollouts.cluster.resources import PODCLIQUESETS
from rollouts.models import AuditEntry, User
from tests.api.calling import Answer, Api, make_api
from tests.api.scene import CLUSTER, NAMESPACE, Scene

pytestmark = pytest.mark.django_db

SPARE = "spare"
PATH = f"/api/v1/workloads/{CLUSTER}/{NAMESPACE}/{SPARE}/"


@pytest.fixture
def api(scene: Scene) -> Api:
    """An administrator, and a second workload."""
    if not is_there(scene):
        stored = scene.stored()
        metadata = {"name": SPARE, "namespace": NAMESPACE}
        spare = {"apiVersion": stored["apiVersion"], "kind": stored["kind"], "metadata": metadata}
        scene.cluster.create(PODCLIQUESETS, {**spare, "spec": stored["spec"]})
        scene.observe()
    return make_api()


def is_there(scene: Scene) -> bool:
    """Whether the cluster has the workload."""
    sets = scene.cluster.list(PODCLIQUESETS, namespace=NAMESPACE).items
    return SPARE in [one["metadata"]["name"] for one in sets]


def delete(api: Api, query: str = "", **headers: str) -> Answer:
    """Give the command."""
    return api.call("DELETE", PATH + query, **headers)


def test_a_deleted_workload_is_answered_with_what_goes(api: Api, scene: Scene) -> None:
    answer = delete(api)
    assert answer.status == 200, answer.body
    assert answer.body["workload"] == {"cluster": CLUSTER, "namespace": NAMESPACE, "name": SPARE}
    told = {name: answer.body[name] for name in ("pods", "gangs", "resources", "was_leaving", "dry_run")}
    assert told == {"pods": 0, "gangs": 0, "resources": {}, "was_leaving": False, "dry_run": False}
    assert not is_there(scene)
    assert api.call("GET", PATH).status == 404
    entries = AuditEntry.objects.filter(request_id=answer.body["request_id"]).order_by("id")
    assert [(one.command, one.result) for one in entries] == [("delete_workload", "Begun"), ("delete_workload", "Done")]


def test_a_dry_run_deletes_nothing(api: Api, scene: Scene) -> None:
    answer = delete(api, "?dry_run=true")
    assert (answer.status, answer.body["dry_run"]) == (200, True)
    assert is_there(scene)


def test_a_parameter_that_nobody_knows_is_refused(api: Api, scene: Scene) -> None:
    assert delete(api, "?dryrun=true").status == 400
    assert is_there(scene)


def test_the_state_that_was_seen_is_the_condition(api: Api, scene: Scene) -> None:
    etag = api.call("GET", PATH).headers["ETag"]
    patch = {"spec": {"replicas": scene.stored()["spec"]["replicas"] + 5}}
    scene.cluster.patch_merge(PODCLIQUESETS, SPARE, patch, namespace=NAMESPACE)
    lost = delete(api, If_Match=etag)
    assert (lost.status, lost.body["changed"]) == (412, ["spec.replicas"])
    assert is_there(scene)
    scene.observe()
    assert delete(api, If_Match=api.call("GET", PATH).headers["ETag"]).status == 200


def test_a_repeated_command_is_carried_out_once(api: Api, scene: Scene) -> None:
    first, second = (delete(api, Idempotency_Key="one") for _ in range(2))
    assert (first.status, second.status) == (200, 200)
    assert first.body == second.body
    assert second.headers["Idempotent-Replayed"] == "true"
    assert delete(api).status == 404


def test_whoever_may_not_is_told_so(api: Api, scene: Scene) -> None:
    User.objects.filter(username="ada").update(is_superuser=False)
    assert delete(api).status == 403
    assert is_there(scene)
