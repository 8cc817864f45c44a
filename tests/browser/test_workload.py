"""The page of a workload while it rolls: seen live to its end, by pointer, by keys and without scripts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.browser.conftest import PATIENCE
from tests.browser.visiting import Sandbox, find_barriers, follow, note_complaints, open_settled, sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROLLED = 2 * PATIENCE

# Notes after each change how many pods the picture shows as ready, and how many as surge; and in an attribute what was
# seen at any time, so that it is not missed however late it is asked for.
WATCH = """() => {
    window.seen = [];
    const words = new Set();
    const number = (kind) => document.querySelectorAll(`#pod-grid .replicas .cell.${kind}`).length;
    const note = () => {
        window.seen.push([number("ready"), number("surge")]);
        words.add(document.querySelector("#head .badge").textContent);
        if (number("previous")) words.add("previous pods");
        if (document.getElementById("now").textContent.includes("of 9 pods are updated")) words.add("how far it is");
        document.documentElement.dataset.seen = [...words].join();
    };
    document.addEventListener("live:refreshed", note);
    note();
}"""

# Notes what is brought of the picture, and lets the page miss one rendering of it when it is told to.
NOTE_TILES = """
    Object.assign(window, { brought: [], toMiss: false });
    const { addEventListener } = EventSource.prototype;
    EventSource.prototype.addEventListener = function (name, act) {
        addEventListener.call(this, name, (event) => {
            const part = JSON.parse(event.data);
            if (part.src?.endsWith("/parts/pod-grid/") && part.html) {
                window.brought.push(part);
                if (window.toMiss) {
                    window.toMiss = false;
                    document.documentElement.dataset.missed = "";
                    return;
                }
            }
            act(event);
        });
    };
"""
MANY = 40


def clique(name: str, replicas: int, **fields: Any) -> dict[str, Any]:
    """Return a clique of a template."""
    pod = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": f"example/{name}:v1"}]}
    spec = {"roleName": name, "replicas": replicas, "minAvailable": 1, "podSpec": pod}
    return {"name": name, "spec": spec, **fields}


@pytest.fixture(scope="module")
def context(browser: Browser, site: Product) -> Iterator[BrowserContext]:
    """A browser in which somebody is signed in."""
    opened = browser.new_context(base_url=site.url)
    sign_in(opened).close()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def sandbox(site: Product) -> Iterator[Sandbox]:
    """The cluster, with a workload of all levels that is removed afterwards.

    One for all tests: pods of one that was just removed would be taken for those of another of its name.
    """
    cluster = Sandbox(site)
    cluster.add(
        "rolling",
        updateStrategy={"type": "RollingUpdate"},
        template={
            "cliques": [
                clique("web", 3, updateStrategy={"maxUnavailable": 0, "maxSurge": 1}),
                clique("leader", 1),
                clique("worker", 2),
            ],
            "podCliqueScalingGroups": [
                {"name": "decode", "cliqueNames": ["leader", "worker"], "replicas": 2, "minAvailable": 1}
            ],
        },
    )
    yield cluster
    cluster.remove("rolling")


def open_page(context: BrowserContext) -> Page:
    """Open the workload's page and wait until all of its pods are ready."""
    page = context.new_page()
    page.set_default_timeout(ROLLED)
    open_settled(page, "rolling")
    page.locator('#live[data-state="live"]').wait_for()
    expect(page.locator("#pod-grid .replicas .cell")).to_have_count(9, timeout=ROLLED)
    expect(page.locator("#pod-grid .replicas .cell.current.ready")).to_have_count(9, timeout=ROLLED)
    return page


def test_a_rolling_update_with_surge_is_seen_live_to_its_end_and_never_below_what_is_desired(
    context: BrowserContext, sandbox: Sandbox
) -> None:
    page = open_page(context)
    complaints = note_complaints(page)
    page.evaluate(WATCH)
    sandbox.set_image("rolling", "example/web:v2")
    for words in ("Rolling", "previous pods", "how far it is"):
        expect(page.locator("html")).to_have_attribute("data-seen", re.compile(words))
    expect(page.locator("#head .badge").first).to_have_text("Settled", timeout=ROLLED)
    expect(page.locator("#pod-grid .replicas .cell.current.ready")).to_have_count(9)
    expect(page.locator("#pod-grid .replicas .cell.surge")).to_have_count(0)
    expect(page.locator("#timeline")).to_contain_text("UpdateEnded")
    expect(page.locator("#revisions li").first).to_contain_text("web v1 → v2")
    expect(page.locator("#capacity .chart")).to_have_attribute("aria-label", re.compile("9 of 9 are updated now"))
    seen: list[tuple[int, int]] = page.evaluate("window.seen")
    assert min(ready for ready, _ in seen) >= 9
    assert max(surge for _, surge in seen) >= 1
    assert complaints == []
    page.close()


def test_arrows_move_in_the_picture_and_say_what_a_pod_is_doing(context: BrowserContext, sandbox: Sandbox) -> None:
    page = open_page(context)
    cells = page.locator("#pod-grid a.cell")
    expect(page.locator('#pod-grid a.cell[tabindex="0"]')).to_have_count(1)
    first, second = (cells.nth(number).get_attribute("id") for number in (0, 1))
    cells.first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == second
    name = str(second).removeprefix("pod-")
    expect(page.locator("#pod-popover")).to_contain_text(name)
    expect(page.locator("#pod-popover")).to_contain_text("Running, ready")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.id") == first
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.id") == cells.last.get_attribute("id")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?pod=rolling-0-decode-1-"))
    page.keyboard.press("Escape")
    expect(page.locator("#pod-popover")).to_be_hidden()
    expect(page).not_to_have_url(re.compile(r"\?pod="))
    page.close()


def test_focus_stays_in_the_picture_when_its_pod_is_replaced(context: BrowserContext, sandbox: Sandbox) -> None:
    page = open_page(context)
    cell = page.locator("#pod-grid a.cell").first
    name = cell.get_attribute("id")
    cell.focus()
    sandbox.set_image("rolling", "example/web:v3")
    expect(page.locator(f"#{name}")).to_have_count(0)
    expect(page.locator("#pod-grid a.cell:focus")).to_have_count(1)
    expect(page.locator('#pod-grid a.cell[tabindex="0"]')).to_have_count(1)
    page.close()


def test_what_the_cluster_tells_of_its_pods_comes_by_itself(context: BrowserContext, sandbox: Sandbox) -> None:
    page = open_page(context)
    expect(page.locator("#events li").first).to_contain_text(re.compile(r"Pod\s+rolling-0-|PodCliqueSet\s+rolling"))
    follow(page.locator("#events").get_by_role("link", name=re.compile("^All")))
    expect(page.get_by_role("heading", name="Events", exact=True)).to_be_visible()
    expect(page.get_by_text("Scheduled").first).to_be_visible()
    assert find_barriers(page) == []
    page.close()


def test_a_pointer_shows_a_pod_and_a_click_pins_it(context: BrowserContext, sandbox: Sandbox) -> None:
    page = open_page(context)
    page.locator("#pod-grid a.cell").nth(3).hover()
    expect(page.locator("#pod-popover")).to_contain_text("example/leader:v1")
    page.locator("#pod-grid a.cell").nth(3).click()
    page.mouse.move(2, 2)
    page.locator("#timeline").hover()
    expect(page.locator("#pod-popover")).to_be_visible()
    page.locator("h1").click()
    expect(page.locator("#pod-popover")).to_be_hidden()
    page.close()


def test_without_scripts_a_cell_leads_to_its_pod(
    browser: Browser, site: Product, context: BrowserContext, sandbox: Sandbox
) -> None:
    open_page(context).close()
    plain = browser.new_context(base_url=site.url, java_script_enabled=False, storage_state=context.storage_state())
    plain.set_default_timeout(PATIENCE)
    page = plain.new_page()
    page.goto("/workloads/sandbox/default/rolling/")
    cell = page.locator("#pod-grid a.cell").first
    name = str(cell.get_attribute("id")).removeprefix("pod-")
    cell.click()
    expect(page.get_by_role("region", name="Pod")).to_contain_text(name)
    expect(page.get_by_role("region", name="Pod")).to_contain_text("Running, ready")
    plain.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_and_what_leads_on_from_it_keep_nobody_out(
    context: BrowserContext, sandbox: Sandbox, theme: str
) -> None:
    page = open_page(context)
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    complaints = note_complaints(page)
    for address in ("", "?pod=none", "revisions/1/", "timeline/", "manifest/"):
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(f"/workloads/sandbox/default/rolling/{address}")
        page.locator("h1").wait_for()
        assert find_barriers(page) == [], address
        page.set_viewport_size({"width": 390, "height": 844})
        assert find_barriers(page) == [], address
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), address
    assert complaints == []
    page.close()


def test_a_workload_that_is_deleted_is_said_to_be_gone_and_is_live_again_when_it_comes_back(
    context: BrowserContext, site: Product
) -> None:
    cluster = Sandbox(site)
    cluster.add("come-and-go")
    page = sign_in(context)
    open_settled(page, "come-and-go")
    expect(page.locator("#live")).to_contain_text("Live")
    cluster.remove("come-and-go")
    indicator = page.locator("#live")
    expect(indicator).to_contain_text("Deleted")
    cluster.add("come-and-go")
    expect(indicator).to_contain_text("Live")
    expect(page.locator("#head")).to_contain_text("Settled")
    cluster.remove("come-and-go")
    page.close()


@pytest.fixture(scope="module")
def large(site: Product) -> Iterator[Sandbox]:
    """The cluster, with a workload of so many replicas that they are shown as tiles."""
    cluster = Sandbox(site)
    cluster.add("many-replicas", replicas=MANY)
    yield cluster
    cluster.remove("many-replicas")


def open_large(context: BrowserContext, script: str = "") -> Page:
    """Open the page of the large workload and wait until all of its pods are ready."""
    page = sign_in(context)
    page.set_default_timeout(ROLLED)
    page.add_init_script(script)
    open_settled(page, "many-replicas")
    page.locator('#live[data-state="live"]').wait_for()
    expect(page.locator("#pod-grid .tile a.cell")).to_have_count(MANY, timeout=ROLLED)
    expect(page.locator("#pod-grid .tile a.cell.ready")).to_have_count(MANY, timeout=ROLLED)
    return page


def replace_pod(page: Page, cluster: Sandbox, replica: int) -> Locator:
    """Have another pod take the place of that of a replica; return the cell of the former."""
    pod = str(page.locator(f"#replica-{replica} a.cell").get_attribute("id")).removeprefix("pod-")
    cluster.replace_pod(pod)
    return page.locator(f"#pod-{pod}")


def see_replaced(page: Page, former: Locator) -> None:
    """Wait until a pod is no longer shown and all that are to be there are ready."""
    expect(former).to_have_count(0, timeout=ROLLED)
    expect(page.locator("#pod-grid .tile a.cell.ready")).to_have_count(MANY, timeout=ROLLED)


def test_a_large_picture_has_the_width_of_its_column_and_follows_every_pod(
    context: BrowserContext, large: Sandbox
) -> None:
    page = open_large(context)
    expect(page.locator("#pod-grid.dense")).to_be_visible()
    widths = page.evaluate("['#pod-grid', '#capacity'].map((one) => document.querySelector(one).offsetWidth)")
    assert widths[0] == widths[1]
    for _ in range(3):  # what was the same before must be seen to change too
        see_replaced(page, replace_pod(page, large, 5))
    page.close()


def test_of_a_large_picture_the_tiles_are_brought_that_changed_and_the_others_stay_as_they_are(
    context: BrowserContext, large: Sandbox
) -> None:
    page = open_large(context, NOTE_TILES)
    page.evaluate(
        "document.querySelectorAll('#pod-grid .tile, #pod-grid a.cell').forEach((one) => (one.wasHere = true))"
    )
    page.evaluate("window.brought = []")
    see_replaced(page, replace_pod(page, large, 5))
    assert page.evaluate("window.brought.some(({ base, tiles }) => base && String(Object.keys(tiles)) === 'replica-5')")
    stay = "[...document.querySelectorAll('#pod-grid .tile, #pod-grid a.cell')].filter((one) => one.wasHere).length"
    assert page.evaluate(stay) == 2 * MANY - 1, "all tiles, and all pods but the one that was replaced"
    page.close()


def test_a_page_that_missed_something_of_a_large_picture_is_brought_all_of_it(
    context: BrowserContext, large: Sandbox
) -> None:
    page = open_large(context, NOTE_TILES)
    page.evaluate("Object.assign(window, { brought: [], toMiss: true })")
    missed = replace_pod(page, large, 5)
    expect(page.locator("html[data-missed]")).to_be_attached(timeout=ROLLED)
    see_replaced(page, replace_pod(page, large, 6))  # of which the page is told by what builds on what it missed
    expect(missed).to_have_count(0, timeout=ROLLED)
    assert page.evaluate(f"window.brought.some((one) => !one.base && Object.keys(one.tiles).length === {MANY - 1})")
    page.evaluate("window.brought = []")
    see_replaced(page, replace_pod(page, large, 5))
    assert page.evaluate("window.brought.some(({ base }) => base)"), "from then on it goes by tiles again"
    page.close()
