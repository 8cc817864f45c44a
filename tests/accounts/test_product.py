"""The running product: GROVE_ADMIN_TOKEN, and single sign-on in a real browser under the Content-Security-Policy."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.conftest import FLAGS, chromium_path
from tests.project.running import Product, product
from tests.web.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider

pytestmark = pytest.mark.slow
TOKEN = "the-token-of-the-settings-1"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """A provider that vouches for Ana."""
    with running_provider() as running:
        running.tell(person={"sub": "1", "preferred_username": "ana", "groups": ["sre"]})
        yield running


@pytest.fixture(scope="module")
def site(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with every way to sign in enabled."""
    variables = {
        "GROVE_ADMIN_TOKEN": TOKEN,
        "GROVE_ADMIN_PASSWORD": "correct horse battery",
        "OIDC_ISSUER": provider.issuer,
        "OIDC_CLIENT_ID": CLIENT_ID,
        "OIDC_CLIENT_SECRET": CLIENT_SECRET,
        "OIDC_NAME": "Example",
        "OIDC_ROLES": "sre=operator",
        "READ_ONLY": "1",
        "STRANGER_RATE": "3/h",
    }
    with product(tmp_path_factory.mktemp("site"), **variables) as running:
        running.wait_until_it_answers()
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, headless."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield launched
        launched.close()


def ask(site: Product, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    """Request a path of the API."""
    request = urllib.request.Request(f"{site.url}/api/v1/{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def who_is_it(page: Page) -> str:
    """Return who is signed in."""
    return str(page.request.get("/api/v1/me/").json()["username"])


def test_the_token_of_the_settings_works_and_is_never_printed(site: Product) -> None:
    status, me = ask(site, "me/", Authorization=f"Bearer {TOKEN}")
    assert (status, me["username"], me["read_only"]) == (200, "admin", True)
    assert TOKEN not in site.output


def test_the_greeting_of_a_read_only_product_says_that_its_controller_continues(site: Product) -> None:
    assert "The controller still creates and deletes pods. OBSERVE=1 stops that." in site.output


def test_an_address_that_anybody_can_claim_is_not_believed(site: Product) -> None:
    claimed = [{"X-Forwarded-For": f"198.51.100.{number}"} for number in range(4)]
    assert [ask(site, "me/", **headers)[0] for headers in claimed] == [401, 401, 401, 429]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_single_sign_on_in_a_browser(browser: Browser, site: Product, scheme: Any) -> None:
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            complaints.append(message.text)

    context = browser.new_context(base_url=site.url, color_scheme=scheme)
    page = context.new_page()
    page.on("console", note)
    page.goto("/sign-in/?next=/healthz")
    page.get_by_role("link", name="Sign in with Example").click()
    page.wait_for_url("**/healthz")
    assert who_is_it(page) == "ana"
    assert complaints == []
    context.close()


@pytest.mark.browser
def test_after_a_failure_the_page_still_signs_in_by_password(
    browser: Browser, site: Product, provider: Provider
) -> None:
    provider.tell(faults=["denies"])
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    page.goto("/sign-in/")
    page.get_by_role("link", name="Sign in with Example").click()
    expect(page.get_by_role("alert")).to_contain_text("did not confirm your identity", timeout=30_000)
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{site.url}/")
    assert who_is_it(page) == "admin"
    context.close()
    provider.tell()
