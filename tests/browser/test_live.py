"""Live pages when things go wrong: the server restarts, the tab is hidden, the session ends."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

from tests.browser.conftest import PASSWORD
from tests.browser.visiting import Sandbox, sign_in
from tests.project.running import Product, product

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def context(browser: Browser, site: Product) -> Iterator[BrowserContext]:
    """A browser in which somebody is signed in."""
    opened = browser.new_context(base_url=site.url)
    sign_in(opened).close()
    yield opened
    opened.close()


def _hide(page: Page, *, hidden: bool) -> None:
    """Say to the page that its tab is hidden, or shown again."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_hidden_tab_costs_nothing_and_is_up_to_date_when_it_is_shown_again(
    context: BrowserContext, site: Product
) -> None:
    page = sign_in(context)
    sandbox = Sandbox(site)
    _hide(page, hidden=True)
    expect(page.locator("#live")).to_contain_text("Paused")
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.on("request", note)
    sandbox.add("unseen")
    other = sign_in(context)
    expect(other.locator("#workload-rows")).to_contain_text("unseen")
    other.close()
    assert asked == []
    _hide(page, hidden=False)
    expect(page.locator("#workload-rows")).to_contain_text("unseen")
    expect(page.locator("#live")).to_contain_text("Live")
    sandbox.remove("unseen")
    page.close()


@pytest.mark.parametrize("address", ["/", "/workloads/sandbox/default/chat-single/"])
def test_a_page_runs_each_script_once(context: BrowserContext, address: str) -> None:
    page = sign_in(context)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.locator('#live[data-state="live"]').wait_for()
    scripts = [name for url in asked for name in re.findall(r"/static/([a-z_-]+)\.(?:[0-9a-f]+\.)?js$", url)]
    assert "live-updates" in scripts
    assert len(scripts) == len(set(scripts))
    page.close()


def test_whoever_is_signed_out_meanwhile_is_told(context: BrowserContext, site: Product) -> None:
    page = sign_in(context)
    cookies = context.cookies()
    _hide(page, hidden=True)
    context.clear_cookies(name="sessionid")
    _hide(page, hidden=False)
    expect(page.get_by_role("link", name="Signed out: sign in again")).to_be_visible()
    context.add_cookies(cookies)  # type: ignore[arg-type]
    page.close()


def test_a_part_that_cannot_be_had_is_said_to_be_old_until_it_can(context: BrowserContext) -> None:
    page = sign_in(context)
    # The server does not know such a part and has it fetched.
    page.route("**/live/elsewhere/", lambda route: route.fulfill(status=500))
    page.evaluate("document.getElementById('workloads').dataset.liveSrc = '/live/elsewhere/'")
    expect(page.locator("#live")).to_contain_text("Cannot refresh")
    # The route that was added last is taken. Without any, for however short, the server would say that it is gone.
    part = '<section id="workloads" data-live="workload" data-live-src="/live/elsewhere/">Here it is</section>'
    page.route("**/live/elsewhere/", lambda route: route.fulfill(body=part))
    expect(page.locator("#workloads")).to_have_text("Here it is")
    expect(page.locator("#live")).to_contain_text("Live")
    page.close()


def test_a_page_that_shows_something_else_is_brought_that(context: BrowserContext, site: Product) -> None:
    page = sign_in(context)
    page.locator("#find").fill("sought")
    expect(page.locator("#workloads")).to_have_attribute("data-live-src", re.compile("search=sought"))
    Sandbox(site).add("unsought")
    Sandbox(site).add("other")
    expect(page.locator("#workload-rows")).to_contain_text("unsought")
    expect(page.locator("#workload-rows")).not_to_contain_text("other")
    Sandbox(site).remove("unsought")
    Sandbox(site).remove("other")
    page.close()


def test_what_is_open_stays_open(context: BrowserContext, site: Product) -> None:
    page = sign_in(context, "/")
    page.locator("#account-menu > summary").click()
    Sandbox(site).add("nudge")
    expect(page.locator("#workload-rows")).to_contain_text("nudge")
    expect(page.locator("#account-menu")).to_have_attribute("open", "")
    Sandbox(site).remove("nudge")
    page.close()


def test_a_page_lives_on_after_the_server_has_restarted(browser: Browser, tmp_path: Path) -> None:
    with product(tmp_path, GROVE_ADMIN_PASSWORD=PASSWORD) as first:
        first.wait_until_it_answers()
        context = browser.new_context(base_url=first.url)
        page = sign_in(context)
        page.evaluate("window.isStillTheSame = true")
        first.interrupt()
        expect(page.locator("#live")).to_contain_text("Reconnecting…")
        again = Product(tmp_path, first.port, first.sandbox_port, {"GROVE_ADMIN_PASSWORD": PASSWORD})
        try:
            again.wait_until_it_answers()
            expect(page.locator("#live")).to_contain_text(re.compile("^Live"))
            Sandbox(again).add("after-the-restart")
            expect(page.locator("#workload-rows")).to_contain_text("after-the-restart")
            assert page.evaluate("window.isStillTheSame")
        finally:
            again.interrupt()
            context.close()
