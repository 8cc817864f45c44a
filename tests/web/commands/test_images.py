"""The form of images: only what was changed is sent, and what is wrong stands beside its field."""

import pytest

from rollouts.models import AuditEntry
from tests.markup import compact
from tests.web.commands.filling import FormClient, fields_of, said_beside

pytestmark = pytest.mark.django_db

FRONTEND, WORKER = "image_frontend_main", "image_worker_main"
V1, V2 = "ghcr.io/example/app:v1", "ghcr.io/example/app:v2"


def images(forms: FormClient) -> dict[str, str]:
    """Return the image of each clique in the cluster."""
    cliques = forms.stage.spec()["template"]["cliques"]
    return {one["name"]: one["spec"]["podSpec"]["containers"][0]["image"] for one in cliques}


def test_the_form_shows_every_container_and_sends_what_was_changed(forms: FormClient) -> None:
    fields = forms.open("images")
    assert {name: fields[name] for name in fields if name.startswith("image_")} == {
        FRONTEND: V1,
        "image_leader_main": V1,
        WORKER: V1,
    }
    answer = forms.send("images", {**fields, FRONTEND: f" {V2} "})
    assert answer.status_code == 302
    assert images(forms) == {"frontend": V2, "leader": V1, "worker": V1}
    entry = AuditEntry.objects.get(result=AuditEntry.Result.DONE)
    assert (entry.command, entry.via, entry.actor) == ("set_images", "page", "olga")
    assert V2 in str(entry.after)


def test_while_somebody_types_the_page_says_how_many_pods_of_which_clique_are_replaced(running: FormClient) -> None:
    before = running.stage.stored()
    page = running.try_out("images", {**running.open("images"), FRONTEND: V2})
    assert 'id="replaced-frontend" hx-swap-oob="true">3 pods replaced<' in page
    assert 'id="replaced-worker" hx-swap-oob="true" hidden><' in page
    assert running.stage.stored() == before
    assert running.commands() == []


def test_what_is_no_image_is_said_beside_its_field_and_changes_nothing(forms: FormClient) -> None:
    answer = forms.change("images", **{FRONTEND: V2, WORKER: "not an image"})
    page = compact(answer.content.decode())
    assert answer.status_code == 422
    assert "without spaces" in said_beside(page, WORKER)
    assert said_beside(page, FRONTEND) == ""
    assert fields_of(page)[FRONTEND] == V2
    assert images(forms)["frontend"] == V1


def test_a_form_that_is_sent_twice_is_carried_out_once(forms: FormClient) -> None:
    fields = {**forms.open("images"), FRONTEND: V2}
    assert [forms.send("images", fields).status_code for _ in range(2)] == [302, 302]
    assert forms.commands().count(("set_images", "Done")) == 1


def test_who_loses_a_race_sends_their_own_change_and_takes_nothing_of_the_other_back(forms: FormClient) -> None:
    mine = {**forms.open("images"), FRONTEND: V2}
    assert forms.change("images", **{WORKER: "ghcr.io/example/app:v3"}).status_code == 302
    lost = forms.send("images", mine)
    page = compact(lost.content.decode())
    assert lost.status_code == 409
    assert "has been changed" in page
    again = fields_of(page)
    assert (again[FRONTEND], again[WORKER]) == (V2, "ghcr.io/example/app:v3")
    assert images(forms)["frontend"] == V1
    assert forms.send("images", again).status_code == 302
    assert images(forms) == {"frontend": V2, "leader": V1, "worker": "ghcr.io/example/app:v3"}


def test_the_password_in_an_image_is_not_shown_and_a_part_of_it_is_not_sent_back(forms: FormClient) -> None:
    secret = "https://olga:s3cret-of-ours@registry.example/app"
    forms.change("images", **{FRONTEND: f"{secret}:v1"})
    fields = forms.open("images")
    assert "s3cret" not in str(fields)
    assert forms.change("images", **{WORKER: V2}).status_code == 302
    assert images(forms)["frontend"] == f"{secret}:v1"
    refused = forms.change("images", **{FRONTEND: fields[FRONTEND].replace("v1", "v2")})
    assert refused.status_code == 422
    assert "write the whole image" in said_beside(refused.content.decode(), FRONTEND)
    assert images(forms)["frontend"] == f"{secret}:v1"
