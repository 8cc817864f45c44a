"""Commands from the pages alone: images rolled to their end, numbers, restarts, the way back, manifests; by keys."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.visiting import Sandbox, find_barriers, follow, note_complaints, open_settled, sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "commanded"
WORKLOAD = f"/workloads/sandbox/default/{NAME}/"
PODS = 3
# Notes whatever the page says is available and updated, from its first rendering on and across pages that are opened.
WATCH = """
const note = () => {
  const available = document.querySelector("#now .budget dd")?.innerText;
  const updated = [...document.querySelectorAll("#now .meter .num")].at(-1)?.innerText;
  if (!available || !updated) return;
  const seen = JSON.parse(sessionStorage.getItem("seen") ?? "[]");
  if (seen.at(-1)?.join() === [available, updated].join()) return;
  sessionStorage.setItem("seen", JSON.stringify([...seen, [available, updated]]));
};
new MutationObserver(note).observe(document, { subtree: true, childList: true, characterData: true });
"""


def template(image: str) -> dict[str, Any]:
    """Return a template of one clique that is replaced by surge alone."""
    pod = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": image}]}
    spec = {"roleName": "web", "replicas": PODS, "minAvailable": 1, "podSpec": pod}
    return {"cliques": [{"name": "web", "updateStrategy": {"maxUnavailable": 0, "maxSurge": 1}, "spec": spec}]}


@pytest.fixture(scope="module")
def sandbox(site: Product) -> Iterator[Sandbox]:
    """The cluster, with a workload that surges."""
    sandbox = Sandbox(site)
    sandbox.add(NAME, updateStrategy={"type": "RollingUpdate"}, template=template("example/web:v1"))
    yield sandbox
    sandbox.remove(NAME)


@pytest.fixture(scope="module")
def context(browser: Browser, site: Product, sandbox: Sandbox) -> Iterator[BrowserContext]:
    """A browser in which somebody is signed in."""
    opened = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    page = sign_in(opened)
    open_settled(page, NAME)
    page.close()
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """The page of the workload, with everything that it wants."""
    opened = sign_in(context, WORKLOAD)
    expect_settled(opened)
    yield opened
    opened.close()


def expect_settled(page: Page, pods: int = PODS) -> None:
    """Wait until all pods are there and of the current template."""
    expect(page.locator("#now .budget dd").first).to_have_text(f"{pods} of {pods} pods")
    settled = f"All {pods} pods are available and run" if pods > 1 else "The only pod is available and runs"
    expect(page.locator("#now .activity-summary")).to_have_text(f"{settled} the current template.")


def said(page: Page) -> str:
    """Return what the page says about the command that was just given."""
    page.wait_for_url(f"**{WORKLOAD}")
    return page.locator("main > .notice").first.inner_text()


def current(page: Page) -> str:
    """Return the number of the revision in force."""
    return page.locator("#revisions li", has_text="current").locator("b").inner_text()


def test_an_image_is_rolled_to_its_end_by_surge_and_capacity_is_never_shown_below_desired(page: Page) -> None:
    complaints = note_complaints(page)
    page.add_init_script(WATCH)
    follow(page.get_by_role("link", name="Change image"))
    page.get_by_label("main", exact=True).fill("example/web:rolled")
    expect(page.locator("#replaced-web")).to_have_text(f"{PODS} pods replaced")
    expect(page.locator("#preview")).to_contain_text(f"{PODS} of {PODS} lowest capacity", use_inner_text=False)
    page.get_by_role("button", name="Change the images").click()
    assert "Changed to example/web:rolled" in said(page)
    expect(page.locator("#revisions")).to_contain_text(re.compile(r"web \S+ → rolled"))
    expect_settled(page)
    seen: list[tuple[str, str]] = json.loads(page.evaluate("sessionStorage.getItem('seen')"))
    counts = [re.match(r"(\d+) (?:of|pods,) (\d+)", one) for one, _ in seen]
    assert {one and one[2] for one in counts} == {str(PODS)}, seen
    assert min(int(one[1]) for one in counts if one) >= PODS, seen
    assert any(re.match("[12] / 3", one) for _, one in seen), "it was not watched on its way"
    assert any("+1" in one for _, one in seen), "no surge was ever seen"
    assert [one for one in complaints if "AbortError" not in one] == []


def test_the_way_back_leads_from_the_revisions_of_the_page(page: Page, sandbox: Sandbox) -> None:
    before = current(page)
    follow(page.get_by_role("link", name="Change image"))
    page.get_by_label("main", exact=True).fill("example/web:wrong")
    page.get_by_role("button", name="Change the images").click()
    said(page)
    follow(page.get_by_role("link", name=f"Roll back to revision {before}", exact=True))
    expect(page.locator(".diff del").first).to_contain_text("example/web:wrong")
    page.get_by_role("button", name=f"Roll back to revision {before}").click()
    assert "The rollback has started" in said(page)
    expect_settled(page)
    assert "wrong" not in str(sandbox.spec(NAME))


def test_numbers_a_restart_and_a_manifest_are_sent_by_their_pages(page: Page, sandbox: Sandbox) -> None:
    follow(page.get_by_role("link", name="Scale", exact=True))
    expect(page.locator("#preview")).to_contain_text("Change a number to see what it would do.")
    page.get_by_label(NAME, exact=True).fill("0")
    box = page.get_by_role("checkbox", name=f"This deletes all {PODS} pods")
    expect(box).not_to_be_checked()
    page.get_by_role("button", name="Scale", exact=True).click()
    assert page.url.endswith("/scale/"), "sent without anybody's agreement"
    page.get_by_label(NAME, exact=True).fill("1")
    expect(box).to_have_count(0)
    page.get_by_role("textbox", name="web", exact=True).fill("4")
    expect(page.locator("#preview")).to_contain_text("1 pod more", use_inner_text=False)
    page.get_by_role("button", name="Scale", exact=True).click()
    assert "3 → 4" in said(page)
    expect_settled(page, 4)

    revision = int(current(page))
    follow(page.get_by_role("link", name="Restart", exact=True))
    expect(page.locator("#preview")).to_contain_text("4 pods replaced", use_inner_text=False)
    page.get_by_role("button", name="Restart the pods").click()
    assert "The restart has started" in said(page)
    expect(page.locator("#revisions li", has_text="current").locator("b")).to_have_text(str(revision + 1))
    expect_settled(page, 4)

    follow(page.get_by_role("link", name="Manifest", exact=True))
    follow(page.get_by_role("link", name="Edit", exact=True))
    text = page.get_by_label("Manifest as YAML or JSON")
    text.fill(text.input_value().replace("replicas: 4", "replicas: many"))
    expect(page.locator("#preview")).to_contain_text("line ")
    text.fill(text.input_value().replace("replicas: many", f"replicas: {PODS}"))
    page.get_by_role("checkbox", name="Apply with force").check()
    expect(page.locator("#preview")).to_contain_text("1 pod fewer", use_inner_text=False)
    page.get_by_role("button", name="Apply the manifest").click()
    assert "Applied: 1 field changed" in said(page)
    expect_settled(page)


def test_a_workload_is_created_by_its_page_from_what_the_form_begins_with(page: Page, sandbox: Sandbox) -> None:
    page.goto("/")
    follow(page.get_by_role("link", name="New workload"))
    text = page.get_by_label("Manifest as YAML or JSON")
    text.fill(text.input_value().replace("my-workload", "written-here"))
    page.get_by_role("button", name="Create the workload").click()
    page.wait_for_url("**/workloads/sandbox/default/written-here/")
    try:
        expect(page.locator("main > .notice").first).to_have_text("Created written-here.")
        expect_settled(page, 1)
    finally:
        sandbox.remove("written-here")


def test_one_tag_goes_into_the_fields_of_all_containers_that_share_an_image(page: Page) -> None:
    page.goto("/workloads/sandbox/default/disagg-surge/images/")
    fields = page.locator("input[data-current-repository]")
    before = [one.input_value() for one in fields.all()]
    page.get_by_label("ghcr.io/example/vllm", exact=True).fill("v9")
    assert [one.input_value() for one in fields.all()] == [one.replace("vllm:v1", "vllm:v9") for one in before]
    expect(page.locator("#changes ins")).to_have_count(sum("vllm" in one for one in before))
    page.get_by_label("ghcr.io/example/vllm", exact=True).fill("")
    assert [one.input_value() for one in fields.all()] == before


def press_tab_to(page: Page, words: str) -> None:
    """Walk on by keys until the focus is on what is called so."""
    for _ in range(80):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "(document.activeElement.labels?.[0] ?? document.activeElement).textContent.trim().split('\\n')[0]"
        )
        if name == words:
            return
    raise AssertionError(f"no key leads to {words!r}")


def test_from_the_list_to_a_finished_rollout_by_keys_alone(page: Page) -> None:
    page.goto("/")
    expect(page.locator('#live[data-state="live"]')).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(NAME)
    expect(page.locator("#workload-rows > tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{WORKLOAD}")
    press_tab_to(page, "Change image")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{WORKLOAD}images/")
    press_tab_to(page, "main")
    page.keyboard.press("Control+a")
    page.keyboard.type("example/web:by-keys")
    expect(page.locator("#replaced-web")).to_have_text(f"{PODS} pods replaced")
    page.keyboard.press("Enter")
    assert "Changed to example/web:by-keys" in said(page)
    expect_settled(page)


def test_the_forms_keep_nobody_out(visitor: BrowserContext, sandbox: Sandbox) -> None:
    page = sign_in(visitor)
    open_settled(page, NAME)
    forms = ("images", "scale", "restart", "apply", f"roll-back/{current(page)}")
    for address in ("/workloads/new/", *(f"{WORKLOAD}{form}/" for form in forms)):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(address)
        expect(page.locator("#preview")).not_to_contain_text("No preview yet.")
        assert find_barriers(page) == [], address
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
