"""A clique that is called like a scaling group: every edit means the group, so no form changes the clique."""

import re

import pytest
from django.test import Client

from rollouts import models
from tests.api.read import fleet
from tests.markup import compact
from tests.web.commands.conftest import sign_in
from tests.web.commands.filling import boxes_of, fields_of, said_beside, say

pytestmark = pytest.mark.django_db

PAGE = "/workloads/sandbox/default/chat/"
SENTENCE = "A scaling group has the same name as this clique, so change the clique in the manifest."


@pytest.fixture
def admin(silent_cluster: models.Cluster) -> Client:
    """Somebody who may do everything, in front of a workload with a clique of three pods and a group of one name."""
    manifest = fleet.podcliqueset(
        "chat",
        cliques=[fleet.clique("web", 3), fleet.clique("leader", 1), fleet.clique("worker", 2)],
        groups=[fleet.group("web", ["leader", "worker"], 2)],
        updateStrategy={"type": "RollingUpdate"},
    )
    fleet.store_parts(silent_cluster, manifest)
    return sign_in("admin", "ada")


def test_only_the_group_has_a_number_and_the_clique_says_why_it_has_none(admin: Client) -> None:
    answer = admin.get(f"{PAGE}scale/")
    page = compact(answer.content.decode())
    assert (fields_of(page)["replicas_web"], fields_of(page)["was_replicas_web"]) == ("2", "2")
    assert page.count('name="replicas_web"') == 1
    assert said_beside(page, "shadowed_web") == SENTENCE
    assert re.search(r'<input [^>]*id="shadowed_web" disabled value="3"', page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len({*ids})
    assert page.count("<option>web</option>") == 1


def test_a_number_that_somebody_types_is_the_group_s(admin: Client) -> None:
    fields = fields_of(admin.get(f"{PAGE}scale/").content.decode())
    tried = admin.post(f"{PAGE}scale/preview/", {**fields, "replicas_web": "4"})
    changes = say(tried, "changes")
    assert "- replicas: 2" in changes
    assert "+ replicas: 4" in changes


def test_the_strategy_of_the_clique_cannot_be_changed_either(admin: Client) -> None:
    assert SENTENCE in say(admin.get(f"{PAGE}strategy/"))


def test_a_remedy_is_offered_for_the_group_alone(admin: Client) -> None:
    page = admin.get(f"{PAGE}more-unavailable/")
    assert boxes_of(page, "chosen") == {"web maxUnavailable=2": "chosen"}
    assert "maxUnavailable 1 → 2 (of 2 replicas)" in say(page)
