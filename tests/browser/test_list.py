"""The list of workloads in a browser: live, in its place, searched while one types."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from tests.browser.conftest import PATIENCE
from tests.browser.visiting import Sandbox, follow, note_complaints, sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def context(browser: Browser, site: Product) -> Iterator[BrowserContext]:
    """A browser in which somebody is signed in."""
    opened = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 800})
    sign_in(opened).close()
    yield opened
    opened.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """The list."""
    opened = sign_in(context)
    yield opened
    opened.close()


@pytest.fixture
def sandbox(site: Product) -> Sandbox:
    """The cluster."""
    return Sandbox(site)


def shown(page: Page) -> Locator:
    """Return where the names of the workloads are shown."""
    return page.locator("#workload-rows > tr td:first-child b")


def names(page: Page) -> list[str]:
    """Return the workloads in the order they are shown."""
    return shown(page).all_inner_texts()


def test_a_workload_appears_rolls_and_goes_without_the_page_being_loaded_again(page: Page, sandbox: Sandbox) -> None:
    complaints = note_complaints(page)
    page.evaluate("window.isStillTheSame = true")
    before = names(page)
    sandbox.add("passing-by")
    mine = page.locator("#workload-rows > tr").filter(has_text="passing-by")
    expect(mine).to_contain_text("Settled")
    # What is new comes last, and the others stay where they are.
    assert names(page) == [*before, "passing-by"]
    expect(page.get_by_text("1 new", exact=False)).to_be_visible()
    chips = mine.locator(".hash")
    expect(chips).to_have_count(1)
    first = chips.first.inner_text()
    sandbox.set_image("passing-by", "example/main:v2")
    expect(chips.first).not_to_have_text(first)
    expect(mine).to_contain_text("Settled")
    expect(chips).to_have_count(1)
    sandbox.remove("passing-by")
    expect(mine).to_have_count(0)
    assert page.evaluate("window.isStillTheSame")
    assert complaints == []


def test_focus_selection_and_scrolling_stay_while_rows_change(page: Page, sandbox: Sandbox) -> None:
    page.set_viewport_size({"width": 1280, "height": 420})
    link = page.get_by_role("link", name="training-workload", exact=True)
    link.focus()
    page.evaluate("window.scrollTo(0, 120)")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    sandbox.add("beside")
    expect(page.locator("#workload-rows > tr").filter(has_text="beside")).to_contain_text("Settled")
    expect(link).to_be_focused()
    assert page.evaluate("window.scrollY") == 120
    assert page.evaluate("getSelection().toString()") == "Workloads"
    sandbox.remove("beside")
    expect(page.locator("#workload-rows > tr").filter(has_text="beside")).to_have_count(0)


def test_typing_narrows_the_list_and_the_address_says_so(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("training")
    expect(page.locator("#workload-rows > tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/\?search=training$"))
    expect(page.get_by_label("Find a workload")).to_be_focused()
    page.reload()
    assert names(page) == ["training-workload"]
    page.get_by_label("Find a workload").fill("nothing like it")
    expect(page.get_by_role("heading", name="No workloads match")).to_be_visible()


def test_an_answer_for_what_was_shown_before_does_not_replace_what_was_searched_for_since(page: Page) -> None:
    held: list[Route] = []
    # The server does not know such a part and has it fetched; its answer is held until the reader has moved on.
    page.route("**/live/elsewhere/", lambda route: held.append(route))  # noqa: PLW0108 (Playwright marks it)
    with page.expect_request("**/live/elsewhere/"):
        page.evaluate("document.getElementById('workloads').dataset.liveSrc = '/live/elsewhere/'")
    page.get_by_label("Find a workload").fill("training")
    expect(page.locator("#workload-rows > tr")).to_have_count(1)
    part = '<section id="workloads" data-live="workload" data-live-src="/live/elsewhere/">Too late</section>'
    with page.expect_response("**/live/elsewhere/"):
        held[0].fulfill(body=part)
    page.evaluate("new Promise((done) => setTimeout(done))")  # whatever was to be done with it is done
    expect(page.locator("#workload-rows > tr")).to_have_count(1)
    assert names(page) == ["training-workload"]


def test_chips_filter_and_are_left_again_by_the_same_chip(page: Page) -> None:
    everything = sorted(names(page))
    follow(page.get_by_role("link", name="settled"))
    expect(page).to_have_url(re.compile("state=settled"))
    expect(page.get_by_role("link", name="settled")).to_have_attribute("aria-current", "true")
    follow(page.get_by_role("link", name="settled"))
    assert sorted(names(page)) == everything


def test_what_is_chosen_from_a_list_is_shown_at_once(page: Page) -> None:
    page.get_by_label("Strategy").select_option("OnDelete")
    expect(page).to_have_url(re.compile(r"\?strategy=OnDelete$"))
    expect(shown(page)).to_have_text(["training-workload"])


def test_the_list_can_be_read_without_scripts(
    page: Page, browser: Browser, site: Product, context: BrowserContext
) -> None:
    # It does not change there: it is read when all pods have come.
    expect(page.get_by_role("row").filter(has_text="training-workload")).to_contain_text("8 of 8")
    plain = browser.new_context(base_url=site.url, java_script_enabled=False, storage_state=context.storage_state())
    plain.set_default_timeout(PATIENCE)
    still = plain.new_page()
    still.goto("/")
    expect(still.get_by_role("row").filter(has_text="training-workload")).to_contain_text("8 of 8")
    still.get_by_label("Strategy").select_option("OnDelete")
    follow(still.get_by_role("button", name="Show"))
    assert names(still) == ["training-workload"]
    plain.close()


@pytest.mark.parametrize("width", [390, 1024, 1440, 2560])
@pytest.mark.parametrize("address", ["/", "/?view=cards"])
def test_nothing_has_to_be_scrolled_sideways(page: Page, width: int, address: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
