"""The form of numbers: several of the template at once, one live component alone, and what is to be agreed to."""

import pytest

from rollouts.cluster.resources import PODCLIQUES
from tests.web.commands.filling import FormClient, fields_of, said_beside

pytestmark = pytest.mark.django_db

SET, FRONTEND, DECODE = "replicas_", "replicas_frontend", "replicas_decode"


def numbers(forms: FormClient) -> tuple[int, int, int]:
    """Return the replicas of the set, of its clique and of its group."""
    spec = forms.stage.spec()
    template = spec["template"]
    return (
        spec["replicas"],
        template["cliques"][0]["spec"]["replicas"],
        template["podCliqueScalingGroups"][0]["replicas"],
    )


def live_frontend(forms: FormClient) -> int:
    """Return what the live clique is scaled to."""
    found = forms.stage.cluster.get(PODCLIQUES, "chat-0-frontend", namespace=forms.stage.namespace)
    replicas: int = found["spec"]["replicas"]
    return replicas


def test_all_numbers_that_were_changed_are_written_at_once(forms: FormClient) -> None:
    fields = forms.open("scale")
    assert [fields[name] for name in (SET, FRONTEND, DECODE)] == ["1", "3", "1"]
    assert forms.send("scale", {**fields, FRONTEND: "4", DECODE: "2"}).status_code == 302
    assert numbers(forms) == (1, 4, 2)
    assert forms.commands().count(("scale_workload", "Done")) == 1


def test_a_form_that_is_sent_twice_scales_once(forms: FormClient) -> None:
    fields = {**forms.open("scale"), SET: "2"}
    assert [forms.send("scale", fields).status_code for _ in range(2)] == [302, 302]
    assert numbers(forms) == (2, 3, 1)
    assert forms.commands().count(("scale_workload", "Done")) == 1


def test_a_live_component_is_scaled_once_by_a_form_that_is_sent_twice(running: FormClient) -> None:
    live = {"live_component": "frontend", "live_replica": "0", "live_replicas": "4"}
    fields = {**running.open("scale"), **live}
    assert [running.send("scale", fields).status_code for _ in range(2)] == [302, 302]
    assert live_frontend(running) == 4


def test_a_clique_that_leaves_its_minimum_out_is_scaled_in(forms: FormClient) -> None:
    assert forms.change("scale", **{FRONTEND: "2"}).status_code == 302
    assert numbers(forms) == (1, 2, 1)
    assert "minAvailable" not in forms.stage.spec()["template"]["cliques"][0]["spec"]


def test_one_number_that_breaks_a_rule_keeps_all_from_being_written(forms: FormClient) -> None:
    cliques = forms.stage.spec()["template"]["cliques"]
    cliques[0]["spec"]["minAvailable"] = 3
    forms.stage.edit_elsewhere(template={"cliques": cliques})
    forms.stage.observe()
    answer = forms.change("scale", **{FRONTEND: "2", DECODE: "2"})
    assert answer.status_code == 422
    assert "minAvailable" in said_beside(answer.content.decode(), FRONTEND)
    assert numbers(forms) == (1, 3, 1)


@pytest.mark.parametrize("text", ["", "-1", "two", "1.5", "9" * 30])
def test_what_is_no_number_is_said_beside_its_field(forms: FormClient, text: str) -> None:
    answer = forms.change("scale", **{SET: text})
    assert answer.status_code == 422
    assert "whole number" in said_beside(answer.content.decode(), SET)
    assert numbers(forms) == (1, 3, 1)


def test_to_scale_to_nothing_somebody_has_to_agree_to_what_goes(forms: FormClient) -> None:
    asked = forms.change("scale", **{SET: "0"})
    page = asked.content.decode()
    assert asked.status_code == 422
    assert "This deletes all 6 pods" in page
    assert numbers(forms) == (1, 3, 1)
    other = "This deletes 13 of 26 pods."
    assert forms.change("scale", **{SET: "0", "agreed": other}).status_code == 422
    sentence = "This deletes all 6 pods, and nothing serves until the workload is scaled up again."
    assert forms.send("scale", {**fields_of(page), "agreed": sentence}).status_code == 302
    assert numbers(forms) == (0, 3, 1)


def test_a_large_jump_is_to_be_agreed_to_and_a_small_one_is_not(forms: FormClient) -> None:
    assert "This creates 30 pods: 36 instead of 6." in forms.change("scale", **{SET: "6"}).content.decode()
    assert numbers(forms) == (1, 3, 1)
    assert forms.change("scale", **{SET: "2"}).status_code == 302


def test_a_number_beyond_all_clusters_is_refused_and_takes_no_time(forms: FormClient) -> None:
    answer = forms.change("scale", **{SET: str(2**31 - 1)})
    assert answer.status_code == 422
    assert numbers(forms) == (1, 3, 1)


def test_one_live_component_is_scaled_and_the_template_left_alone(running: FormClient) -> None:
    live = {"live_component": "frontend", "live_replica": "0", "live_replicas": "4"}
    page = running.try_out("scale", {**running.open("scale"), **live})
    assert "PodClique chat-0-frontend" in page
    assert "replicas: 4" in page
    assert running.change("scale", **live).status_code == 302
    assert (live_frontend(running), numbers(running)) == (4, (1, 3, 1))
    opened = running.client.get(running.address("scale")).content.decode()
    assert "4 in replica 0" in opened


@pytest.mark.parametrize(
    ("live", "field", "words"),
    [
        ({"live_component": "", "live_replica": "0", "live_replicas": "4"}, "live_component", "choose"),
        ({"live_component": "frontend", "live_replica": "7", "live_replicas": "4"}, "live_replica", "replicas 0 to 0"),
        ({"live_component": "frontend", "live_replica": "0", "live_replicas": "1"}, "live_replicas", "minAvailable"),
        ({"live_component": "frontend", "live_replica": "0", "live_replicas": ""}, "live_replicas", "whole number"),
    ],
)
def test_what_is_wrong_about_a_live_component_is_said_beside_its_field(
    running: FormClient, live: dict[str, str], field: str, words: str
) -> None:
    answer = running.change("scale", **live)
    assert answer.status_code == 422
    assert words in said_beside(answer.content.decode(), field)
    assert live_frontend(running) == 3


def test_the_template_and_a_live_component_are_not_scaled_by_one_form(running: FormClient) -> None:
    live = {"live_component": "frontend", "live_replica": "0", "live_replicas": "4"}
    answer = running.change("scale", **{SET: "2"}, **live)
    assert answer.status_code == 422
    assert "either the template or one live component" in said_beside(answer.content.decode(), "live_component")
    assert (live_frontend(running), numbers(running)) == (3, (1, 3, 1))
