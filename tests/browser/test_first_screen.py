"""What somebody sees who has just typed `make run`."""

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import PASSWORD
from tests.browser.visiting import note_complaints

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def _open(visitor: BrowserContext) -> tuple[Page, list[str]]:
    """Open the site and collect what the browser complains about."""
    page = visitor.new_page()
    complaints = note_complaints(page)
    page.goto("/")
    return page, complaints


def test_signing_in_by_keyboard_leads_to_the_samples_of_the_sandbox(visitor: BrowserContext) -> None:
    page, complaints = _open(visitor)
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("admin")
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Workloads")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="chat-single")).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    assert complaints == []


def test_a_wrong_password_is_explained_and_the_form_stays(visitor: BrowserContext) -> None:
    page, _ = _open(visitor)
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Wrong name or password")
    expect(page.get_by_label("Name")).to_have_value("admin")


def test_signing_out_ends_the_session(visitor: BrowserContext) -> None:
    page, _ = _open(visitor)
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#account-menu > summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.goto("/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_phone_needs_no_sideways_scrolling(visitor: BrowserContext) -> None:
    page, _ = _open(visitor)
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Workloads")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
