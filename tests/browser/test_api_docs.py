"""The page of the REST API: Swagger UI without an inline script, sending requests by the session of its reader."""

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import PASSWORD
from tests.browser.visiting import note_complaints

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_operations_are_shown_and_can_be_tried_under_the_strict_policy(visitor: BrowserContext) -> None:
    page = visitor.new_page()
    complaints = note_complaints(page)
    page.goto("/")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("Password").press("Enter")
    expect(page.get_by_role("row").filter(has_text="chat-single")).to_be_visible()
    answer = page.goto("/api/v1/docs/")
    assert answer is not None
    assert "unsafe" not in answer.headers["content-security-policy"]

    detail = page.locator("#operations-workloads-workloads_detail")
    detail.locator(".opblock-summary-control").click()
    detail.get_by_role("button", name="Try it out").click()
    detail.get_by_role("button", name="Execute").click()
    expect(detail.locator(".live-responses-table")).to_contain_text('"name": "chat-single"')

    restart = page.locator("#operations-commands-workload_restart")
    restart.locator(".opblock-summary-control").click()
    restart.get_by_role("button", name="Try it out").click()
    restart.get_by_role("textbox").last.fill("{}")
    restart.get_by_role("button", name="Execute").click()
    # A command by session needs the CSRF token: the page has sent it.
    expect(restart.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
    assert complaints == []
