"""The keyboard alone: every page is reached, rows are walked, nothing is caught while somebody types."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.visiting import sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(browser: Browser, site: Product) -> Iterator[Page]:
    """A page of somebody who is signed in."""
    context = browser.new_context(base_url=site.url)
    yield sign_in(context)
    context.close()


@pytest.mark.parametrize(
    ("key", "heading"), [("n", "Nodes"), ("o", "Overrides"), ("c", "Clusters"), ("a", "Audit"), ("w", "Workloads")]
)
def test_g_and_a_letter_go_to_a_page(page: Page, key: str, heading: str) -> None:
    page.wait_for_load_state()  # before that nobody listens
    page.keyboard.type(f"g{key}")
    expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()


def test_rows_are_walked_with_j_and_k_and_opened_with_enter(page: Page) -> None:
    page.goto("/")
    links = page.locator("#workload-rows > tr td:first-child a")
    page.keyboard.press("j")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("j")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(links.nth(0)).to_be_focused()
    name = links.nth(0).inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()


def test_letters_that_are_typed_stay_letters(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("gt?")
    expect(page.get_by_label("Find a workload")).to_have_value("gt?")
    page.keyboard.press("Escape")
    expect(page.get_by_label("Find a workload")).not_to_be_focused()
    expect(page.locator("#keyboard-dialog")).not_to_be_visible()


def test_the_keyboard_map_opens_closes_and_gives_the_focus_back(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("j")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard")).not_to_be_visible()
    expect(page.locator("#workload-rows > tr td:first-child a").first).to_be_focused()


def test_the_theme_changes_and_is_remembered_without_a_flash(page: Page) -> None:
    page.goto("/")
    root = page.locator("html")
    for theme in ("dark", "light"):
        page.keyboard.press("t")
        expect(root).to_have_attribute("data-theme", theme)
        answer = page.request.get("/")
        assert re.search(rf'<html lang="en" data-theme="{theme}">', answer.text())
    page.keyboard.press("t")
    expect(root).not_to_have_attribute("data-theme", re.compile("."))


def test_the_button_leads_through_all_themes(page: Page) -> None:
    seen = []
    for _ in range(3):
        page.locator("[data-theme-toggle]").first.click()
        seen.append(page.evaluate("document.documentElement.dataset.theme ?? ''"))
    assert seen == ["dark", "light", ""]


def test_the_first_tab_skips_to_the_content(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()


def test_signing_out_needs_no_mouse(page: Page) -> None:
    page.goto("/")
    page.locator("#account-menu > summary").focus()
    page.keyboard.press("Enter")
    button = page.get_by_role("button", name="Sign out")
    button.focus()
    page.keyboard.press("Escape")
    expect(page.locator("#account-menu > summary")).to_be_focused()
    expect(button).not_to_be_visible()
