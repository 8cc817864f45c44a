"""The form of a restart: which pods, and one restart however often it is sent."""

import pytest

from rollouts.engine.manifest.edits import RESTARTED_AT
from tests.markup import compact
from tests.web.commands.filling import FormClient

pytestmark = pytest.mark.django_db


def restarted(forms: FormClient) -> dict[str, str]:
    """Return the cliques that have been restarted, with when."""
    cliques = forms.stage.spec()["template"]["cliques"]
    found = {one["name"]: (one.get("annotations") or {}).get(RESTARTED_AT) for one in cliques}
    return {name: at for name, at in found.items() if at}


def test_the_form_counts_the_pods_of_each_component(running: FormClient) -> None:
    page = compact(running.client.get(running.address("restart")).content.decode())
    assert "none selected: all 6 pods" in page
    for words in ("3 pods", "scaling group, 3 pods", "2 pods", "1 pod<"):
        assert words in page


def test_none_chosen_restarts_all_and_sending_it_twice_is_one_restart(forms: FormClient) -> None:
    fields = forms.open("restart")
    assert [forms.send("restart", fields).status_code for _ in range(2)] == [302, 302]
    assert restarted(forms).keys() == {"frontend", "leader", "worker"}
    assert forms.commands().count(("restart_workload", "Done")) == 1


@pytest.mark.parametrize(("component", "cliques"), [("decode", {"leader", "worker"}), ("worker", {"worker"})])
def test_a_group_or_one_of_its_cliques_is_restarted_alone(forms: FormClient, component: str, cliques: set[str]) -> None:
    assert forms.change("restart", component=[component]).status_code == 302
    assert restarted(forms).keys() == cliques


def test_a_component_that_is_not_there_is_refused(forms: FormClient) -> None:
    answer = forms.change("restart", component=["nobody"])
    assert answer.status_code == 422
    assert restarted(forms) == {}
