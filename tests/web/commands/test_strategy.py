"""The page on which a strategy is edited: what it is filled with, and what it says while one types."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from rollouts import models
from rollouts.models import StrategyOverride, User
from tests.api.read import fleet
from tests.markup import compact
from tests.web.commands.filling import fields_of, say

pytestmark = pytest.mark.django_db

PAGE = "/workloads/sandbox/default/chat/strategy/"
WEB, DECODE = "components.web", "components.decode"
ROLLING = {"type": "RollingUpdate"}


@pytest.fixture
def admin(client: Client) -> Client:
    """Somebody who may do everything."""
    client.force_login(User.objects.create_superuser("ada"))
    return client


@pytest.fixture
def chat(silent_cluster: models.Cluster) -> models.Cluster:
    """A workload with all levels: three pods of web, and two replicas of decode."""
    store(silent_cluster, updateStrategy=ROLLING)
    fleet.store_nodes(silent_cluster, 1)
    return silent_cluster


def store(row: models.Cluster, web: Any = None, **spec: Any) -> None:
    """Put the workload into the mirror."""
    cliques = [fleet.clique("web", 3), fleet.clique("leader", 1), fleet.clique("worker", 2)]
    if web is not None:
        cliques[0]["updateStrategy"] = web
    manifest = fleet.podcliqueset(
        "chat", cliques=cliques, groups=[fleet.group("decode", ["leader", "worker"], 2)], **spec
    )
    fleet.store_parts(row, manifest)


def trial(client: Client, **changes: str) -> Any:
    """Try the form as it was opened, with some fields changed."""
    fields = fields_of(client.get(PAGE).content.decode())
    return client.post(
        f"{PAGE}preview/", {**fields, **{name.replace("__", "."): text for name, text in changes.items()}}
    )


def test_the_form_holds_what_the_workload_says_and_what_it_comes_to(
    admin: Client, silent_cluster: models.Cluster
) -> None:
    store(silent_cluster, web={"maxUnavailable": "50%", "maxSurge": 1}, updateStrategy=ROLLING)
    page = admin.get(PAGE)
    fields = fields_of(page.content.decode())
    assert fields["type"] == "RollingUpdate"
    assert (fields[f"{WEB}.maxUnavailable"], fields[f"{WEB}.maxSurge"]) == ("50%", "1")
    assert (fields["maxSurge"], fields[f"{DECODE}.maxSurge"]) == ("", "")
    assert say(page, f"says-{WEB}") == "50% of 3 → 1: one pod at a time and one extra; 2 of 3 keep serving."
    assert say(page, f"says-{DECODE}") == "One replica at a time; 1 of 2 keeps serving."
    assert "RollingUpdate does not use this budget" in say(page, "says-set")


def test_numbers_come_back_with_every_trial(admin: Client, chat: models.Cluster) -> None:
    answer = trial(admin, components__web__maxUnavailable="2", components__decode__maxSurge="100%")
    assert say(answer, f"says-{WEB}") == "Two pods at a time; 1 of 3 keeps serving."
    assert say(answer, f"says-{DECODE}") == "100% of 2 → 2: one replica at a time and two extra; 1 of 2 keeps serving."


def test_another_type_looks_at_other_levels_at_once(admin: Client, chat: models.Cluster) -> None:
    answer = trial(admin, type="ReplicaRecreate")
    assert (
        'class="help-text unused"' not in answer.content.decode().split('id="says-set"')[0].split('id="means-set"')[1]
    )
    assert "ReplicaRecreate does not use this budget" in say(answer, f"says-{WEB}")


WRONG = [
    (f"{WEB}.maxUnavailable", "0", WEB, "may not both be 0"),
    (f"{WEB}.maxUnavailable", "4", f"{WEB}.maxUnavailable", "may not exceed replicas"),
    (f"{WEB}.maxUnavailable", "10%", WEB, "both resolve to 0"),
    (f"{DECODE}.maxSurge", "some", f"{DECODE}.maxSurge", "must be a whole number"),
    ("maxSurge", "2", "set", "RollingUpdate always updates one replica of the set at a time"),
    ("type", "Sideways", "type", "must be one of"),
]


@pytest.mark.usefixtures("chat")
@pytest.mark.parametrize(("field", "text", "place", "sentence"), WRONG)
def test_what_is_wrong_is_said_at_its_field(admin: Client, field: str, text: str, place: str, sentence: str) -> None:
    answer = trial(admin, **{field: text})
    assert sentence in say(answer, f"wrong-{place}")
    assert "Not valid yet" in say(answer)
    # What is wrong at one level does not keep the others from being told.
    assert say(answer, f"says-{WEB if place.startswith(DECODE) else DECODE}")
    assert say(trial(admin), f"wrong-{place}") == ""


def test_a_trial_compares_the_next_rollout_with_the_one_as_it_is(admin: Client, chat: models.Cluster) -> None:
    words = say(trial(admin, components__web__maxUnavailable="3"))
    assert "What the next rollout would do" in words
    assert "lowest capacity, was" in words
    assert "+ updateStrategy: + maxUnavailable: 3" in words


def test_a_form_as_it_was_opened_changes_nothing(admin: Client, chat: models.Cluster) -> None:
    assert "No changes." in say(trial(admin))


def test_a_cluster_that_is_full_stops_surge(admin: Client, chat: models.Cluster) -> None:
    surge = {"components.web.maxUnavailable": "0", "components.web.maxSurge": "1"}
    assert "stuck" not in say(trial(admin, **surge))
    words = say(trial(admin, **surge, full="1"))
    assert "The rollout gets stuck. With the present strategy it completes." in words
    assert "Possible remedies: Check the nodes" in words


def test_a_chosen_type_is_put_down_only_where_it_would_not_follow(
    admin: Client, silent_cluster: models.Cluster
) -> None:
    store(silent_cluster, web={"maxSurge": 1})  # which makes RollingUpdate of a type that is left out
    assert "type:" not in say(trial(admin, components__web__maxUnavailable="2"), "changes")
    assert "+ type: RollingUpdate" in say(trial(admin, components__web__maxSurge=""), "changes")
    assert "+ type: OnDelete" in say(trial(admin, type="OnDelete"), "changes")


def test_an_override_is_told_with_its_reason_where_it_counts(admin: Client, chat: models.Cluster) -> None:
    until = timezone.now() + timedelta(hours=1)
    StrategyOverride.objects.create(
        name="chat", components={"web": {"maxUnavailable": 3}}, reason="an incident", expires_at=until
    )
    page = admin.get(PAGE)
    assert fields_of(page.content.decode())[f"{WEB}.maxUnavailable"] == ""
    words = say(page, f"means-{WEB}")
    assert "All 3 pods at once" in words
    assert "sets maxUnavailable to 3" in words
    assert "an incident" in words
    # What is typed is saved, and does not count as long as that does.
    tried = trial(admin, components__web__maxUnavailable="1")
    assert "All 3 pods at once" in say(tried, f"means-{WEB}")
    assert "+ maxUnavailable: 1" in say(tried, "changes")


def test_a_secret_is_in_no_diff(admin: Client, silent_cluster: models.Cluster) -> None:
    store(silent_cluster, updateStrategy={"type": "RollingUpdate"})
    row = models.Workload.objects.get(name="chat")
    container = row.manifest["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    container["env"] = [{"name": "API_TOKEN", "value": "hunter2"}]
    row.save()
    assert "hunter2" not in trial(admin, components__web__maxUnavailable="2").content.decode()


def test_what_a_preview_assumes_stands_under_its_figures_and_can_be_supposed_otherwise(
    admin: Client, chat: models.Cluster
) -> None:
    faster = {"components__web__maxUnavailable": "3"}
    words = say(trial(admin, **faster))
    assert "1 of 1 node takes new pods, as far as taints, selectors and the requests of other pods allow." in words
    assert "New pods of web take 30 s to become Ready (assumed, since no pod was measured)." in words
    assert "New pods take 7 s to become Ready." in say(trial(admin, **faster, seconds_to_ready="7"))
    models.Node.objects.update(unschedulable=True)
    words = say(trial(admin, **faster))
    assert "0 of 1 node take new pods (1 cordoned)" in words
    assert "The rollout gets stuck. With the present strategy it gets stuck too." in words
    assert "Your assumption: there is room for every pod." in say(trial(admin, **faster, unlimited="1"))


def test_how_long_deleted_pods_take_to_end_can_be_supposed_otherwise(admin: Client, chat: models.Cluster) -> None:
    faster = {"components__web__maxUnavailable": "3", "full": "1"}
    assert "Deleted pods take 5 s to terminate (assumed)." in say(trial(admin, **faster))
    assert "Deleted pods take 70 s to terminate." in say(trial(admin, **faster, seconds_to_go="70"))
    # Without scripts the whole page comes back, with what was supposed.
    fields = {**fields_of(admin.get(PAGE).content.decode()), "seconds_to_go": "70", "try": "1"}
    page = admin.post(PAGE, fields).content.decode()
    assert fields_of(page)["seconds_to_go"] == "70"
    assert re.search(r"<details[^>]* id=\"what-if\"[^>]* open", compact(page))


@pytest.mark.parametrize(
    ("field", "words"),
    [("seconds_to_ready", "until a new pod is Ready"), ("seconds_to_go", "until a deleted pod is gone")],
)
def test_a_time_that_is_none_is_refused_in_a_sentence(
    admin: Client, chat: models.Cluster, field: str, words: str
) -> None:
    said = say(trial(admin, components__web__maxUnavailable="3", **{field: "soon"}))
    assert f"The seconds {words} must be a number from 0 to 86400, or empty for the measured time." in said
