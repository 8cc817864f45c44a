"""Every page in both themes and on a phone: no barriers that axe finds, nothing that the browser complains about."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser.conftest import PATIENCE
from tests.browser.visiting import find_barriers, note_complaints, sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = (
    *("/", "/?view=cards", "/?search=nothing", "/nodes/", "/overrides/", "/overrides/?state=ended", "/clusters/"),
    *("/audit/", "/audit/?actor=nobody", "/account/", "/tokens/", "/help/", "/nodes/?cluster=nowhere"),
)


@pytest.fixture(scope="module", params=["light", "dark"])
def context(request: pytest.FixtureRequest, browser: Browser, site: Product) -> Iterator[BrowserContext]:
    """A browser in which somebody is signed in, in each theme."""
    opened = browser.new_context(base_url=site.url, color_scheme=request.param)
    opened.set_default_timeout(PATIENCE)
    sign_in(opened).close()
    yield opened
    opened.close()


@pytest.mark.parametrize("address", PAGES)
def test_nobody_is_kept_out(context: BrowserContext, address: str) -> None:
    page = context.new_page()
    complaints = note_complaints(page)
    answer = page.goto(address)
    assert answer
    page.locator('#live[data-state="live"]').wait_for()
    assert find_barriers(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert find_barriers(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    if answer.ok:
        assert complaints == []
    page.close()


def test_the_sign_in_page_keeps_nobody_out(browser: Browser, site: Product) -> None:
    for theme in ("light", "dark"):
        context = browser.new_context(base_url=site.url, color_scheme=theme)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto("/sign-in/")
        assert find_barriers(page) == []
        context.close()


def test_the_keyboard_map_keeps_nobody_out(context: BrowserContext) -> None:
    page = sign_in(context)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    assert find_barriers(page) == []
    page.close()


def test_a_token_is_made_and_revoked(context: BrowserContext) -> None:
    page = sign_in(context, "/tokens/")
    page.get_by_label("What is it for?").fill("a pipeline")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("#new-token")).to_contain_text("grove_")
    assert find_barriers(page) == []
    page.get_by_role("button", name="Revoke a pipeline").first.click()
    expect(page.get_by_role("row").filter(has_text="a pipeline").first).to_contain_text("revoked")
    page.close()
