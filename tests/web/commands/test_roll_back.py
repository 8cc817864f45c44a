"""The way back: its difference is shown, it is taken once, and a revision that is not there has no form."""

import re

import pytest

from tests.web.commands.filling import FormClient

pytestmark = pytest.mark.django_db

V1, V2 = "ghcr.io/example/app:v1", "ghcr.io/example/app:v2"


@pytest.fixture
def changed(running: FormClient) -> FormClient:
    """A workload of two revisions."""
    running.change("images", image_frontend_main=V2)
    running.stage.deploy()
    return running


def image(forms: FormClient) -> str:
    """Return the image of the first clique."""
    container = forms.stage.spec()["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]
    found: str = container["image"]
    return found


def test_the_page_shows_what_comes_back_and_does_it_once(changed: FormClient) -> None:
    page = changed.client.get(changed.address("roll-back/1")).content.decode()
    assert "Roll back to revision 1</button>" in page
    assert re.search(rf"<del>- +-? ?image: {V2}</del>\s*<ins>\+ +-? ?image: {V1}</ins>", page)
    fields = changed.open("roll-back/1")
    assert "pods replaced" in changed.try_out("roll-back/1", fields)
    assert [changed.send("roll-back/1", fields).status_code for _ in range(2)] == [302, 302]
    assert image(changed) == V1
    assert changed.commands().count(("roll_back_workload", "Done")) == 1


def test_there_is_no_form_for_a_revision_that_is_not_on_record(changed: FormClient) -> None:
    answer = changed.client.get(changed.address("roll-back/7"))
    assert answer.status_code == 404
    assert "no revision 7" in answer.content.decode()


def test_each_former_revision_leads_to_its_way_back(changed: FormClient) -> None:
    page = changed.client.get(changed.address("roll-back/1").removesuffix("roll-back/1/")).content.decode()
    assert changed.address("roll-back/1") in page
    assert changed.address("roll-back/2") not in page
