"""Kubernetes Events by HTTP: a list like the others, read from the cluster; one that is away is a sentence."""

from secrets import token_hex
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from rollouts.cluster import ClusterClient, Forbidden, Unavailable
from rollouts.models import AuditEntry
from tests.api.calling import Api, make_api
from tests.api.scene import NAME, Scene

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(scene: Scene) -> Api:
    """An administrator, and a workload with Events."""
    return make_api()


def tell_many(scene: Scene, number: int) -> list[str]:
    """Create Events of a pod, each a second before the last; return the reasons."""
    reasons = [f"Told{token_hex(4)}" for _ in range(number)]
    for seconds, reason in enumerate(reasons):
        scene.tell(scene.pods()[0], reason, f"said {seconds}", seconds_ago=seconds)
    return reasons


def test_events_of_the_set_and_of_its_pods_are_a_list_the_newest_first(api: Api, scene: Scene) -> None:
    scene.tell(scene.stored(), "SetTold", "about all of it", seconds_ago=20, kind="PodCliqueSet")
    scene.tell(scene.pods()[0], "PodTold", "no room", seconds_ago=10)
    # A pod of this name would be a former one of the workload's own.
    scene.tell({"metadata": {"name": "batch-7ghxq", "uid": "somebody-else"}}, "Foreign")
    answer = api.call("GET", "events/")
    assert answer.status == 200, answer.body
    assert answer.body.keys() == {"count", "next", "previous", "results", "is_partial", "problem"}
    told = [one for one in answer.body["results"] if one["reason"] in ("SetTold", "PodTold", "Foreign")]
    assert [(one["reason"], one["message"], one["kind"]) for one in told] == [
        ("PodTold", "no room", "Pod"),
        ("SetTold", "about all of it", "PodCliqueSet"),
    ]
    assert (told[0]["is_warning"], told[0]["count"], told[0]["source"]) == (True, 2, "kubelet")
    assert told[0]["at"].endswith("Z")
    assert told[1]["name"] == NAME
    assert (answer.body["is_partial"], answer.body["problem"]) == (False, "")
    assert not AuditEntry.objects.exists()


def test_pages_follow_each_other_to_the_end(api: Api, scene: Scene) -> None:
    tell_many(scene, 5)
    whole = api.call("GET", "events/").body["results"]
    read, address = list[Any](), "events/?page_size=2"
    while address:
        page = api.call("GET", address).body
        assert page["count"] == len(whole)
        assert 1 <= len(page["results"]) <= 2
        read += page["results"]
        address = page["next"] and f"events/?{page['next'].partition('?')[2]}"
    assert read == whole
    beyond = api.call("GET", "events/?page=1000000&page_size=500").body
    assert (beyond["results"], beyond["next"]) == ([], None)


def test_many_cost_as_many_queries_as_few(api: Api, scene: Scene) -> None:
    for number in (1, 30):
        tell_many(scene, number)
        with CaptureQueriesContext(connection) as captured:
            assert api.call("GET", "events/?page_size=500").status == 200
        assert len(captured) == 9, "\n".join(query["sql"][:200] for query in captured)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("page_size=0", "page_size"),
        ("page_size=501", "page_size"),
        ("page_size=many", "page_size"),
        ("page=-1", "page"),
        ("limit=5", "limit"),
        ("page=1&page=2", "page"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(api: Api, query: str, field: str) -> None:
    answer = api.call("GET", f"events/?{query}")
    assert (answer.status, answer.fields) == (400, [field])


def test_what_may_be_secret_is_hidden_in_their_words(api: Api, scene: Scene) -> None:
    scene.tell(scene.pods()[0], "Failed", "cannot pull with --password=correct-horse-battery")
    (message,) = [one["message"] for one in api.call("GET", "events/").body["results"] if one["reason"] == "Failed"]
    assert message == "cannot pull with --password=‹hidden›"


# ---- a cluster that cannot be asked


def is_told_as_problem(api: Api) -> str:
    """Return the sentence in place of Events that cannot be read."""
    answer = api.call("GET", "events/")
    assert answer.status == 200, answer.body
    assert (answer.body["count"], answer.body["results"], answer.body["next"]) == (0, [], None)
    sentence: str = answer.body["problem"]
    return sentence


@pytest.mark.parametrize(
    ("error", "words"),
    [(Unavailable("no answer within 10 s"), "no answer within 10 s"), (Forbidden("not you"), "deploy/rbac")],
    ids=["away", "not permitted"],
)
def test_a_cluster_that_does_not_answer_is_a_sentence(
    api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(ClusterClient, "list_page", fail)
    assert words in is_told_as_problem(api)


def test_a_cluster_that_is_in_trouble_is_not_asked(api: Api, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterClient, "list_page", lambda *_, **__: pytest.fail("it is asked"))
    row = scene.row.__class__.objects.get(pk=scene.row.pk)
    row.trouble_code, row.trouble = "Unreachable", "The server does not answer."
    row.save()
    assert "The server does not answer." in is_told_as_problem(api)


def test_a_workload_that_is_not_there_is_not_found(api: Api) -> None:
    assert api.call("GET", "/api/v1/workloads/sandbox/team-a/nobody/events/").status == 404
