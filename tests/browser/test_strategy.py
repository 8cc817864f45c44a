"""A strategy edited in a browser: checked while one types, saved, obeyed; a race lost and won; by keys, both themes."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser.visiting import Sandbox, add_viewer, find_barriers, follow, note_complaints, open_settled, sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "steered"
WORKLOAD = f"/workloads/sandbox/default/{NAME}/"
PAGE = f"{WORKLOAD}strategy/"
WEB = "components.web"


def clique(name: str, replicas: int) -> dict[str, Any]:
    """Return a clique of a template."""
    pod = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": f"example/{name}:v1"}]}
    return {"name": name, "spec": {"roleName": name, "replicas": replicas, "minAvailable": 1, "podSpec": pod}}


@pytest.fixture(scope="module")
def sandbox(site: Product) -> Iterator[Sandbox]:
    """The cluster, with a workload of all levels."""
    sandbox = Sandbox(site)
    group = {"name": "decode", "cliqueNames": ["leader"], "replicas": 2, "minAvailable": 1}
    sandbox.add(
        NAME,
        updateStrategy={"type": "RollingUpdate"},
        template={"cliques": [clique("web", 3), clique("leader", 1)], "podCliqueScalingGroups": [group]},
    )
    yield sandbox
    sandbox.remove(NAME)


@pytest.fixture(scope="module")
def context(browser: Browser, site: Product, sandbox: Sandbox) -> Iterator[BrowserContext]:
    """A browser in which the first account is signed in, and has seen the workload come."""
    opened = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    page = sign_in(opened)
    open_settled(page, NAME)
    page.close()
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext, sandbox: Sandbox) -> Iterator[Page]:
    """The form, tried once."""
    opened = sign_in(context, WORKLOAD)
    expect(opened.locator("#pod-grid header")).to_contain_text("1 of 1 available")
    opened.goto(PAGE)
    expect(opened.locator("#preview")).to_contain_text("What the next rollout would do")
    yield opened
    opened.close()


def field(page: Page, name: str) -> Locator:
    """Return a field of the form."""
    return page.locator(f'[name="{name}"]')


def saying(page: Page, what: str, key: str) -> Locator:
    """Return what is said of a level or a field."""
    return page.locator(f'[id="{what}-{key}"]')


def test_what_is_typed_is_checked_at_its_field_and_the_caret_stays(page: Page) -> None:
    complaints = note_complaints(page)
    unavailable = field(page, f"{WEB}.maxUnavailable")
    unavailable.focus()
    page.keyboard.type("0")
    expect(saying(page, "wrong", WEB)).to_contain_text("may not both be 0")
    expect(unavailable).to_have_attribute("aria-invalid", "true")
    expect(field(page, f"{WEB}.maxSurge")).to_have_attribute("aria-invalid", "true")
    expect(field(page, "maxSurge")).not_to_have_attribute("aria-invalid", "true")
    page.keyboard.press("ArrowLeft")
    page.keyboard.type("3")
    expect(saying(page, "wrong", f"{WEB}.maxUnavailable")).to_contain_text("may not exceed replicas")
    page.keyboard.press("Delete")
    expect(saying(page, "says", WEB)).to_have_text("All 3 pods at once; no pod serves during the update.")
    expect(unavailable).not_to_have_attribute("aria-invalid", "true")
    # Nobody has moved the caret, and what is typed is what was typed.
    expect(unavailable).to_be_focused()
    assert unavailable.evaluate("field => [field.value, field.selectionStart]") == ["3", 1]
    expect(page.locator("#preview")).to_contain_text("lowest capacity, was")
    expect(page.locator("#changes")).to_contain_text("maxUnavailable: 3")
    # A trial that another one has overtaken is given up, which htmx puts on record.
    assert [one for one in complaints if "AbortError" not in one] == []


def test_another_type_looks_at_other_levels_at_once(page: Page) -> None:
    expect(saying(page, "says", "set")).to_contain_text("RollingUpdate does not use this budget")
    page.get_by_label("ReplicaRecreate").check()
    expect(saying(page, "says", "set")).to_have_text("The only replica; no replica serves during the update.")
    expect(saying(page, "says", WEB)).to_contain_text("ReplicaRecreate does not use this budget")


def test_a_saved_strategy_is_obeyed_by_the_running_controller(page: Page, sandbox: Sandbox) -> None:
    page.get_by_label("OnDelete").check()
    expect(page.locator("#changes")).to_contain_text("type: OnDelete")
    page.get_by_role("button", name="Save to the cluster").click()
    page.wait_for_url(f"**{WORKLOAD}")
    expect(page.get_by_role("status").filter(has_text="The strategy is saved")).to_be_visible()
    sandbox.set_image(NAME, "example/web:v2")
    expect(page.locator("#now")).to_contain_text("Outdated pods wait until you delete them")
    follow(page.get_by_role("link", name="Strategy and surge"))
    page.get_by_label("RollingUpdate").check()
    # There is something to roll at once: it is told what becomes of that.
    expect(page.locator("#preview")).to_contain_text("What this would do")
    expect(page.locator("#preview")).to_contain_text("3 pods replaced")
    follow(page.get_by_role("button", name="Save to the cluster"))
    expect(page.locator("#now")).to_contain_text("All 5 pods are available and run the current template")


def test_a_lost_race_is_shown_and_takes_nothing_from_anybody(page: Page, sandbox: Sandbox) -> None:
    field(page, f"{WEB}.maxUnavailable").fill("2")
    sandbox.put(NAME, "/spec/template/podCliqueScalingGroups/0/updateStrategy", {"maxSurge": 1})
    expect(page.locator("#version-check")).to_contain_text(f"{NAME} has been changed since you opened this page")
    expect(field(page, f"{WEB}.maxUnavailable")).to_have_value("2")
    follow(page.get_by_role("button", name="Save to the cluster"))
    expect(page.get_by_role("alert").first).to_contain_text("has been changed")
    expect(page.locator("#command-form")).to_contain_text("maxSurge of decode")
    expect(field(page, f"{WEB}.maxUnavailable")).to_have_value("2")
    expect(field(page, "components.decode.maxSurge")).to_have_value("1")
    page.get_by_role("button", name="Save to the cluster").click()
    page.wait_for_url(f"**{WORKLOAD}")
    template = sandbox.spec(NAME)["template"]
    assert template["cliques"][0]["updateStrategy"] == {"maxUnavailable": 2}
    assert template["podCliqueScalingGroups"][0]["updateStrategy"] == {"maxSurge": 1}


def test_the_form_is_filled_in_and_sent_by_keys_alone(page: Page, sandbox: Sandbox) -> None:
    page.get_by_role("radio", checked=True).focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("ReplicaRecreate")).to_be_checked()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_label("RollingUpdate")).to_be_checked()
    for name in ("maxUnavailable", "maxSurge", f"{WEB}.maxUnavailable", f"{WEB}.maxSurge"):
        page.keyboard.press("Tab")
        expect(field(page, name)).to_be_focused()
    page.keyboard.type("50%")
    expect(saying(page, "says", WEB)).to_contain_text("50% of 3 → 2")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{WORKLOAD}")
    assert sandbox.spec(NAME)["template"]["cliques"][0]["updateStrategy"]["maxSurge"] == "50%"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_keeps_people_out(page: Page, theme: Any) -> None:
    page.emulate_media(color_scheme=theme)
    page.locator("#what-if summary").click()
    assert find_barriers(page) == []
    field(page, "components.decode.maxUnavailable").fill("much")
    expect(saying(page, "wrong", "components.decode.maxUnavailable")).not_to_be_empty()
    assert find_barriers(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert find_barriers(page) == []


@pytest.mark.usefixtures("sandbox")
def test_who_may_only_see_reads_why_the_form_is_disabled(
    browser: Browser, site: Product, context: BrowserContext
) -> None:
    admin = sign_in(context)
    add_viewer(admin, "vera")
    admin.close()
    theirs = browser.new_context(base_url=site.url)
    page = sign_in(theirs, PAGE, "vera")
    expect(page.locator("#blocked")).to_contain_text("You may not edit an update strategy")
    expect(field(page, f"{WEB}.maxUnavailable")).to_be_disabled()
    expect(page.get_by_role("radio", checked=True)).to_be_disabled()
    save = page.get_by_role("button", name=re.compile("Save to the cluster"))
    expect(save).to_have_attribute("aria-disabled", "true")
    expect(save).to_have_attribute("aria-describedby", "blocked")
    assert find_barriers(page) == []
    theirs.close()
