"""What a change would do, asked by HTTP: nothing is written, the answer is bounded, and it says what the rules say."""

from typing import Any

import pytest

from rollouts.models import AuditEntry, StrategyOverride
from rollouts.services import simulation, simulation_report
from tests.api.calling import Answer, Api, make_api
from tests.api.scene import CLUSTER, NAMESPACE, Scene
from tests.scenarios.stage import clique, podcliqueset

pytestmark = pytest.mark.django_db

IMAGES = {"kind": "images", "images": [{"clique": "frontend", "image": "example:v9"}]}
ROLLING = {
    "kind": "strategy",
    "type": "RollingUpdate",
    "components": {"frontend": {"maxSurge": 1, "maxUnavailable": 0}},
}


@pytest.fixture
def api(scene: Scene) -> Api:
    """An administrator, and a workload under OnDelete whose frontend is outdated."""
    return make_api()


def ask(api: Api, change: dict[str, Any], **behaviour: Any) -> Answer:
    """Ask what a change would do."""
    body = {"change": change, "behaviour": behaviour} if behaviour else {"change": change}
    return api.post("simulation/", body)


def everything(scene: Scene) -> tuple[Any, Any]:
    """Return what the cluster has of the workload."""
    return scene.stored(), scene.pods()


def test_a_switch_of_strategy_tells_each_step_of_the_update_it_would_start(api: Api, scene: Scene) -> None:
    before = everything(scene)
    answer = ask(api, ROLLING, seconds_to_ready=10)
    assert answer.status == 200, answer.body
    told = answer.body
    assert (told["end"], told["starts_update"]) == ("Done", False)
    frontend = next(one for one in told["components"] if one["component"] == "chat-0-frontend")
    assert (frontend["wanted"], frontend["lowest"], frontend["most_surge"]) == (4, 4, 1)
    # The surge pod goes too, and was not there before.
    assert (told["pods_created"], told["pods_deleted"], told["replaced"]) == (5, 5, {"frontend": 4})
    assert told["seconds"] >= 50
    assert [one["field"] for one in told["changed"]] == [
        "spec.updateStrategy.type",
        "spec.template.cliques[0].updateStrategy",
    ]
    assert told["steps"][0]["at"] == 0
    assert any(step["writes"].get("Create Pod") for step in told["steps"])
    assert everything(scene) == before
    assert not AuditEntry.objects.exists()


def test_under_on_delete_new_images_replace_nobody(api: Api) -> None:
    told = ask(api, IMAGES).body
    assert (told["end"], told["starts_update"]) == ("Done", True)
    assert (told["pods_created"], told["pods_deleted"]) == (0, 0)
    assert "AwaitingDeletion" in [wait["code"] for wait in told["waits"]]


def test_an_override_counts_in_a_simulation(api: Api) -> None:
    StrategyOverride.objects.create(name="chat", strategy="RollingRecreate", reason="an incident")
    told = ask(api, IMAGES).body
    assert told["pods_deleted"] == 4


def test_an_image_that_never_gets_ready_is_stuck_and_says_why(api: Api) -> None:
    StrategyOverride.objects.create(name="chat", strategy="RollingRecreate", reason="an incident")
    told = ask(api, IMAGES, never_ready=["frontend"]).body
    assert told["end"] == "Stuck"
    assert [wait["code"] for wait in told["waits"] if wait["is_problem"]] == ["WaitingForReady"]


def test_surge_in_a_full_cluster_is_stuck(api: Api) -> None:
    told = ask(api, ROLLING, full=True).body
    assert told["end"] == "Stuck"
    assert "SurgeUnschedulable" in [wait["code"] for wait in told["waits"]]


def test_the_numbers_say_what_they_rest_on(api: Api) -> None:
    told = ask(api, ROLLING).body
    assert {one["about"] for one in told["assumptions"]} == {"Room", "OtherPods", "Ready", "Termination"}
    supposed = ask(api, ROLLING, seconds_to_ready=9, seconds_to_go=2, unlimited=True).body
    assert [one["text"] for one in supposed["assumptions"]] == [
        "Your assumption: there is room for every pod.",
        "New pods take 9 s to become Ready.",
        "Deleted pods take 2 s to terminate.",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "scale", "replicas": 2},
        {"kind": "scale", "replicas": 5, "component": "frontend"},
        {"kind": "scale", "replicas": 5, "component": "frontend", "replica": 0},
        {"kind": "scale", "replicas": 3, "component": "decode", "replica": 0},
        {"kind": "restart"},
        {"kind": "restart", "components": ["decode"]},
        {"kind": "rollback", "revision": 1},
    ],
    ids=str,
)
def test_every_command_can_be_tried_out(api: Api, scene: Scene, change: dict[str, Any]) -> None:
    before = everything(scene)
    answer = ask(api, change)
    assert answer.status == 200, answer.body
    assert answer.body["end"] == "Done"
    assert everything(scene) == before


def test_scaling_a_live_component_creates_its_pods(api: Api) -> None:
    told = ask(api, {"kind": "scale", "replicas": 6, "component": "frontend", "replica": 0}).body
    assert told["pods_created"] == 2
    change = {"field": "PodClique chat-0-frontend: spec.replicas", "before": 4, "after": 6}
    assert told["changed"] == [change]


def test_a_manifest_is_tried_out_on_the_cluster_without_effect(api: Api, scene: Scene) -> None:
    before = everything(scene)
    told = ask(api, {"kind": "apply", "manifest": {"spec": {**before[0]["spec"], "replicas": 2}}}).body
    assert [one["field"] for one in told["changed"]] == ["spec.replicas"]
    assert told["pods_created"] == 6
    assert everything(scene) == before


def test_something_new_is_tried_out_from_nothing(api: Api, scene: Scene) -> None:
    manifest = podcliqueset(clique("web", 3), name="fresh")
    path = f"/api/v1/workloads/{CLUSTER}/{NAMESPACE}/fresh/simulation/"
    told = api.post(path, {"change": {"kind": "apply", "manifest": manifest}}).body
    assert (told["end"], told["pods_created"], told["version"]) == ("Done", 3, "")
    assert api.call("GET", f"/api/v1/workloads/{CLUSTER}/{NAMESPACE}/fresh/").status == 404


def test_a_state_that_is_no_more_is_not_simulated(api: Api) -> None:
    answer = api.post("simulation/", {"change": IMAGES}, If_Match='"other.1"')
    assert answer.status == 412


# ---- bounds


def large(replicas: int) -> dict[str, Any]:
    """Return a change that is about four times as many pods."""
    manifest = podcliqueset(clique("web", 4), name="fresh", replicas=replicas)
    return {"change": {"kind": "apply", "manifest": manifest}}


def test_a_large_workload_is_followed_as_far_as_there_is_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MAX_SECONDS", 0.0)
    answer = api.post(f"/api/v1/workloads/{CLUSTER}/{NAMESPACE}/fresh/simulation/", large(2500))
    assert answer.status == 200, answer.body
    assert answer.body["end"] == "Unfinished"
    assert len(answer.body["steps"]) == 1


def test_an_answer_is_bounded_in_size(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation_report, "MAX_ENTRIES", 2)
    monkeypatch.setattr(simulation_report, "MAX_STEPS", 6)
    monkeypatch.setattr(simulation_report, "_STEPS_AT_THE_END", 2)
    told = ask(api, ROLLING).body
    assert len(told["steps"]) == 6
    assert told["steps_left_out"] > 0
    assert told["steps"][-1]["at"] == told["seconds"] or told["steps"][-1]["at"] > told["steps"][0]["at"]
    assert all(len(step["moments"]) <= 2 and len(step["counts"]) <= 2 for step in told["steps"])


def test_what_is_too_large_is_refused_in_words(api: Api) -> None:
    answer = api.post(f"/api/v1/workloads/{CLUSTER}/{NAMESPACE}/fresh/simulation/", large(10_000))
    assert answer.status == 409
    assert "40,000 pods" in answer.body["detail"]


@pytest.mark.parametrize(
    "scale",
    [
        {"replicas": 10_001, "component": "frontend", "replica": 0},
        {"replicas": 150_000, "component": "frontend", "replica": 0},
        {"replicas": 10_001, "component": "decode", "replica": 0},
        {"replicas": 10_001, "component": "frontend"},
        {"replicas": 10_001, "component": "decode"},
        {"replicas": 10_001},
    ],
    ids=str,
)
def test_nothing_is_simulated_that_is_scaled_too_far(
    api: Api, monkeypatch: pytest.MonkeyPatch, scale: dict[str, Any]
) -> None:
    monkeypatch.setattr(simulation, "MAX_SECONDS", 0.0)
    answer = ask(api, {"kind": "scale", **scale})
    assert answer.status == 409, answer.body["end"]
    assert "A simulation covers at most 10,000" in answer.body["detail"]


# ---- what is refused


BAD: list[tuple[Any, str]] = [
    ({}, "change"),
    ({"change": None}, "change"),
    ({"change": []}, "change"),
    ({"change": {}}, "change.kind"),
    ({"change": {"kind": 7}}, "change.kind"),
    ({"change": {"kind": "explode"}}, "change.kind"),
    ({"change": {"kind": "images"}}, "change.images"),
    ({"change": {"kind": "images", "images": [{"clique": "frontend", "image": 7}]}}, "change.images[0].image"),
    ({"change": {"kind": "images", "images": [{"clique": "nobody", "image": "a"}]}}, "images[0].clique"),
    ({"change": {"kind": "scale", "replicas": "many"}}, "change.replicas"),
    ({"change": {"kind": "scale", "replicas": 3, "component": "leader", "replica": 0}}, "component"),
    ({"change": {"kind": "scale", "replicas": 3, "component": "frontend", "replica": 9}}, "replica"),
    ({"change": {"kind": "apply"}}, "change.manifest"),
    ({"change": {"kind": "apply", "manifest": "x"}}, ""),
    ({"change": IMAGES, "behaviour": {"seconds_to_ready": "nan"}}, "behaviour.seconds_to_ready"),
    ({"change": IMAGES, "behaviour": {"seconds_to_ready": -1}}, "behaviour.seconds_to_ready"),
    ({"change": IMAGES, "behaviour": {"seconds_to_ready": 1e300}}, "behaviour.seconds_to_ready"),
    ({"change": IMAGES, "behaviour": {"full": 1}}, "behaviour.full"),
    ({"change": IMAGES, "behaviour": {"full": True, "unlimited": True}}, "behaviour.unlimited"),
    ({"change": IMAGES, "behaviour": {"all_ready": "yes"}}, "behaviour.all_ready"),
    ({"change": IMAGES, "behaviour": {"never_ready": "frontend"}}, "behaviour.never_ready"),
    ({"change": IMAGES, "behavior": {}}, "behavior"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_a_question_that_cannot_be_asked_names_the_field(api: Api, body: Any, field: str) -> None:
    answer = api.post("simulation/", body)
    assert answer.status == 422, answer.body
    assert field in answer.fields, answer.body


def test_a_revision_that_is_gone_is_not_there(api: Api) -> None:
    assert ask(api, {"kind": "rollback", "revision": 77}).status == 404
