"""What cannot end by itself is a problem at once: in the list, on the page, and with the way back beside it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from rollouts.engine.plan.deadlines import LATE_AFTER
from tests.browser.visiting import Sandbox, find_barriers, follow, open_settled, sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PODS = 3


@pytest.fixture(scope="module")
def page(browser: Browser, site: Product) -> Iterator[Page]:
    """A page of somebody who may do everything."""
    context = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    yield sign_in(context)
    context.close()


@contextmanager
def rolling(page: Page, site: Product, name: str, tag: str) -> Iterator[None]:
    """Have three pods on a node with room to spare, and change their image."""
    sandbox = Sandbox(site)
    sandbox.add_node(name, 9)
    sandbox.add_pods(name, PODS, (1, 0))
    open_settled(page, name)
    sandbox.set_image(name, f"example/main:{tag}")
    try:
        yield
    finally:
        sandbox.remove(name)
        sandbox.remove_node(name)


@pytest.mark.parametrize(
    ("tag", "title", "sentence"),
    [
        ("crash", "Container keeps crashing", "crash-loops: exit code 1."),
        ("missing", "Image cannot be pulled", "cannot pull its image: example/main:missing."),
        ("oom", "Container ran out of memory", "runs out of memory and is killed."),
        ("misconfigured", "Container cannot be created", 'cannot create its container: secret "main" not found.'),
    ],
)
def test_a_container_that_fails_needs_attention_at_once_and_is_rolled_back(
    page: Page, site: Product, tag: str, title: str, sentence: str
) -> None:
    name = f"fails-{tag}"
    with rolling(page, site, name, tag):
        began = time.monotonic()
        page.goto("/?state=needs-attention")
        row = page.locator("#workload-rows > tr").filter(has_text=name)
        expect(row).to_contain_text(title)
        assert time.monotonic() - began < LATE_AFTER, "only once it had taken too long"
        follow(row.get_by_role("link", name=name))
        cards = page.locator("#now .alert")
        expect(cards).to_have_count(1)
        expect(cards).to_contain_text(sentence)
        expect(cards.locator(".btn").first).to_contain_text("Roll back")
        assert find_barriers(page) == []
        follow(cards.get_by_role("link", name="Roll back"))
        follow(page.get_by_role("button", name="Roll back to revision 1"))
        open_settled(page, name)
        expect(page.locator("#now")).to_contain_text(f"All {PODS} pods are available and run the current template.")


def test_a_calm_rollout_has_nothing_to_press(page: Page, site: Product) -> None:
    with rolling(page, site, "calm", "slow"):
        line = page.locator("#now summary.expected-wait")
        expect(line).to_contain_text("Waiting for pods to become ready")
        expect(line).to_contain_text("usually")
        expect(page.locator("#now .alert")).to_have_count(0)
        expect(page.locator("#now .btn")).to_have_count(0)
