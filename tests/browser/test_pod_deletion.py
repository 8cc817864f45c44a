"""Outdated pods chosen under OnDelete, deleted and followed until they are back; a choice survives what happens."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.visiting import Sandbox, find_barriers, follow, note_complaints, open_settled, sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "picked"
PAGE = f"/workloads/sandbox/default/{NAME}/"


@pytest.fixture(scope="module")
def sandbox(browser: Browser, site: Product) -> Iterator[Sandbox]:
    """A workload of five pods under OnDelete, all of them up."""
    sandbox = Sandbox(site)
    sandbox.add_node(NAME, 20)
    sandbox.add_pods(NAME, 5, updateStrategy={"type": "OnDelete"})
    with browser.new_context(base_url=site.url) as context:
        open_settled(sign_in(context), NAME)
    yield sandbox
    sandbox.remove(NAME)
    sandbox.remove_node(NAME)


@pytest.fixture
def page(browser: Browser, site: Product, sandbox: Sandbox) -> Iterator[Page]:
    """The page of the workload, its pods outdated."""
    context = browser.new_context(base_url=site.url)
    page = sign_in(context)
    page.goto(PAGE)
    expect_all_up(page)
    sandbox.set_image(NAME, f"example/main:{next(_tags)}")
    # Others may wait from before; these are all.
    expect(page.locator("#now")).to_contain_text("Outdated pods wait until you delete them")
    expect(page.locator("#now .activity-summary")).to_contain_text("5 of 5 pods are outdated")
    yield page
    context.close()


_tags = iter(f"v{number}" for number in range(2, 99))


def expect_all_up(page: Page) -> None:
    """Wait until the pods have come back that were deleted before."""
    expect(page.locator("#now .budget dd").first).to_have_text("5 of 5 pods")


def chosen(page: Page, number: int) -> list[str]:
    """Return the names of the pods that are chosen, once there are so many: what is refreshed is ticked again."""
    ticked = page.locator('#pods input[name="pod"]:checked')
    expect(ticked).to_have_count(number)
    return [value.split("/")[0] for value in ticked.evaluate_all("boxes => boxes.map((box) => box.value)")]


def test_pods_are_chosen_by_keys_deleted_and_come_back_with_the_current_template(page: Page) -> None:
    complaints = note_complaints(page)
    follow(page.get_by_role("link", name="Delete outdated pods"))
    expect(page.locator('#pods input[name="pod"]')).to_have_count(5)
    page.locator('#pods input[name="pod"]').first.focus()
    expect(page.locator("#preview")).to_contain_text("5 pods selected")  # all that wait there
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator("#preview")).to_contain_text("3 pods selected")
    expect(page.locator("#preview")).to_contain_text("2 of 5")
    hash_now = page.locator("#preview .replacements .hash").last.inner_text()
    page.get_by_role("button", name="Delete 3 pods").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Deleted pods")).to_be_visible()
    rows = page.locator("#departure-rows > tr")
    expect(rows).to_have_count(3)
    for row in rows.all():
        expect(row).to_contain_text("Evicted")
        expect(row).to_contain_text(re.compile(rf"ready\s*{hash_now}"))
    # A trial that another one has overtaken is given up, which htmx puts on record.
    assert [one for one in complaints if "AbortError" not in one] == []


def test_what_is_chosen_survives_what_happens_meanwhile(page: Page, sandbox: Sandbox) -> None:
    page.goto(f"{PAGE}pods/")
    expect(page.locator('#live[data-state="live"]')).to_be_visible()
    page.get_by_role("link", name="all 5", exact=True).click()
    names = chosen(page, 5)
    page.locator('#pods input[name="pod"]').first.click()  # not this one
    expect(page.get_by_role("button", name="Delete 4 pods")).to_be_visible()
    sandbox.delete_pod(names[0])
    expect(page.locator('#pods input[name="pod"]')).to_have_count(4)
    assert chosen(page, 4) == names[1:]
    expect(page.locator("#dropped-pods")).to_be_hidden()
    sandbox.delete_pod(names[1])
    expect(page.locator("#dropped-pods")).to_contain_text(names[1])
    expect(page.get_by_role("button", name="Delete 3 pods")).to_be_visible()
    page.get_by_role("link", name="By node").click()
    expect(page.locator("#pods")).to_contain_text(f"{NAME} ")
    assert sorted(chosen(page, 3)) == sorted(names[2:])
    expect(page.locator("#preview")).to_contain_text("3 pods selected")


def test_whoever_is_signed_out_meanwhile_is_led_to_the_sign_in_page(page: Page) -> None:
    page.goto(f"{PAGE}pods/")
    expect(page.locator('#live[data-state="live"]')).to_be_visible()
    page.context.clear_cookies()
    page.get_by_role("link", name="By node").click()
    page.wait_for_url("**/sign-in/**")
    expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
    expect(page.locator("#pods")).to_have_count(0)


def test_the_pages_keep_nobody_out(visitor: BrowserContext, sandbox: Sandbox) -> None:
    page = sign_in(visitor, PAGE)
    expect_all_up(page)
    page.goto(f"{PAGE}any-pods/?all=1")
    expect(page.locator("#preview")).to_contain_text("5 pods selected")
    expect(page.get_by_role("checkbox", name="This deletes 5 pods")).not_to_be_checked()
    assert find_barriers(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert find_barriers(page) == []
