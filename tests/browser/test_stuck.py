"""Stuck surge, explained where it is seen and freed by the button beside the reason.

Each workload has a node of its own that is as large as its pods are many, so the cluster is full for it alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from rollouts.engine.plan.deadlines import SCHEDULED_WITHIN
from tests.browser.conftest import PATIENCE
from tests.browser.visiting import Sandbox, find_barriers, follow, open_settled, sign_in
from tests.project.running import Product

CROWDED = "crowded"

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(browser: Browser, site: Product) -> Iterator[Page]:
    """A page of somebody who may do everything."""
    context = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    yield sign_in(context)
    context.close()


@pytest.fixture(scope="module", autouse=True)
def _crowded(page: Page, site: Product) -> Iterator[None]:
    """Be stuck from the beginning: a pod without a node is no problem before it has waited a while."""
    with rolling(page, site, CROWDED, (0, 1), room=3, tag="v2"):
        expect(page.locator("#now")).to_contain_text("Surge cannot be scheduled")
        yield


@contextmanager
def rolling(page: Page, site: Product, name: str, budget: tuple[int, int], *, room: int, tag: str) -> Iterator[None]:
    """Have three pods on a node with just that much room, and change their image."""
    sandbox = Sandbox(site)
    sandbox.add_node(name, room)
    sandbox.add_pods(name, 3, budget)
    open_settled(page, name)
    sandbox.set_image(name, f"example/main:{tag}")
    try:
        yield
    finally:
        sandbox.remove(name)
        sandbox.remove_node(name)


def expect_settled(page: Page, name: str) -> None:
    """Expect the rollout to come to its end."""
    open_settled(page, name)
    expect(page.locator("#now")).to_contain_text("All 3 pods are available and run the current template.")


def test_surge_that_keeps_the_last_one_from_its_room_ends_when_it_is_deleted(page: Page, site: Product) -> None:
    with rolling(page, site, "tight", (1, 1), room=3, tag="v2"):
        last = page.locator("#now .alert").filter(has_text="until every original is available")
        follow(last.get_by_role("link", name="Delete the surge"))
        expect(page.locator("#content")).to_contain_text("surge of tight-0-main: 1 pod, 1 ready on tight")
        expect(page.locator("#preview .stat").first).to_be_visible()
        follow(page.get_by_role("button", name="Delete the surge"))
        expect(page.locator("#departure-rows > tr")).to_contain_text("gone; not replaced")
        expect_settled(page, "tight")


def test_a_broken_image_is_rolled_back_from_where_it_is_explained(page: Page, site: Product) -> None:
    with rolling(page, site, "broken", (0, 1), room=9, tag="broken"):
        expect(page.locator("#now")).to_contain_text("Waiting for surge to become ready")
        follow(page.locator("#now").get_by_role("link", name="Roll back").first)
        follow(page.get_by_role("button", name="Roll back to revision 1"))
        expect_settled(page, "broken")
        # Nothing was missing at any time: only the surge was broken.
        expect(page.locator("#pod-grid header")).to_contain_text("1 of 1 available")


def test_surge_without_room_is_explained_and_ends_when_it_is_set_to_0(page: Page) -> None:
    page.goto("/?state=needs-attention")
    row = page.locator("#workload-rows > tr").filter(has_text=CROWDED)
    expect(row).to_contain_text("Surge cannot be scheduled", timeout=SCHEDULED_WITHIN * 1000 + PATIENCE)
    follow(row.get_by_role("link", name=CROWDED))
    expect(page.locator("#now")).to_contain_text("Too many pods")
    follow(page.locator("#now").get_by_role("link", name="Set maxSurge to 0"))
    expect(page.get_by_text("maxSurge 1 → 0, maxUnavailable 0 → 1 (of 3 pods)")).to_be_visible()
    expect(page.locator("#preview")).to_contain_text("2 of 3")
    assert find_barriers(page) == []
    follow(page.get_by_role("button", name="Set maxSurge to 0"))
    expect(page.get_by_text("maxSurge is 0: surge is deleted, and the rollout can use its room.")).to_be_visible()
    expect_settled(page, CROWDED)
