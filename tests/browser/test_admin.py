"""The admin site in a browser: an override is written with what it would do in view, by keyboard as well as mouse."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from tests.browser.conftest import PASSWORD, PATIENCE
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SAMPLES = 6  # workloads that the sandbox begins with
ADD = "/admin/rollouts/strategyoverride/add/"
LIST = "/admin/rollouts/strategyoverride/"
PAGES = [
    "/admin/",
    *(f"/admin/rollouts/{name}/" for name in ("strategyoverride", "auditentry", "user", "apitoken", "namespacegrant")),
    *(f"/admin/rollouts/{name}/" for name in ("cluster", "workload", "scalinggroup", "clique", "pod", "gang", "node")),
    *(f"/admin/rollouts/{name}/" for name in ("service", "rollout", "step", "revision")),
    *("/admin/auth/group/", "/admin/auth/group/add/", "/admin/rollouts/user/add/", "/admin/rollouts/cluster/1/change/"),
    *("/admin/rollouts/workload/1/change/", "/admin/rollouts/namespacegrant/add/", ADD),
    *("/admin/rollouts/user/1/change/", "/admin/rollouts/user/1/end/"),
]


@pytest.fixture(scope="module")
def session(browser: Browser, site: Product) -> Iterator[BrowserContext]:
    """Somebody who is signed in: the first account."""
    context = browser.new_context(base_url=site.url, viewport={"width": 1360, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto("/sign-in/?next=/admin/")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Overrides in force")).to_be_visible()
    # What an override would hit is told of what is known: that is everything once the list shows it.
    page.goto("/")
    expect(page.locator("#workload-rows > tr")).to_have_count(SAMPLES)
    page.close()
    yield context
    context.close()


@pytest.fixture
def page(session: BrowserContext) -> Iterator[Page]:
    """A page that must give the browser nothing to complain about."""
    opened = session.new_page()
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    opened.on("console", note)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    opened.close()
    assert complaints == []


def test_typing_shows_which_workloads_are_hit_and_what_would_be_in_force(page: Page) -> None:
    page.goto(ADD)
    panel = page.locator("#override-check")
    expect(panel).to_contain_text(f"It matches {SAMPLES} workloads")
    page.get_by_label("Workload", exact=True).fill("disagg-surge")
    expect(panel).to_contain_text("It matches 1 workload")
    page.get_by_label("Surge", exact=True).first.fill("2")
    expect(panel.get_by_role("row", name=re.compile("disagg-surge"))).to_contain_text("maxUnavailable 0, maxSurge 2")
    expect(panel).to_contain_text("1 would change")
    page.get_by_label("Surge", exact=True).first.fill("many")
    surge = page.locator("[data-field=max_surge]")
    expect(surge).to_contain_text("must be a whole number, 0 or more, or a percentage")
    expect(page.locator("#id_max_surge")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Workload", exact=True).fill("nobody")
    expect(panel).to_contain_text("It matches no workload.")


def test_a_workload_that_cannot_take_it_is_named_with_the_rule(page: Page) -> None:
    page.goto(ADD)
    page.get_by_label("Workload", exact=True).fill("agg-multi")
    page.get_by_label("Surge", exact=True).first.fill("2")
    panel = page.locator("#override-check")
    expect(panel).to_contain_text("breaks a rule")
    expect(panel).to_contain_text("RollingUpdate always updates one replica of the set at a time")


def test_saving_without_a_reason_and_an_end_names_both_fields(page: Page) -> None:
    page.goto(ADD)
    page.get_by_label("Strategy", exact=True).select_option("OnDelete")
    page.get_by_label("Workload", exact=True).fill("chat-single")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[data-field=reason]")).to_contain_text("Give a reason")
    expect(page.locator("[data-field=expires_at]")).to_contain_text("Choose an end")
    expect(page.get_by_label("Workload", exact=True)).to_have_value("chat-single")
    expect(page.locator("#override-check")).to_contain_text("sandbox/default/chat-single")


def test_an_override_is_put_in_force_and_ended_by_keyboard_alone(page: Page) -> None:
    page.goto(ADD)
    expect(page.locator("#override-check")).to_contain_text("It matches")
    page.get_by_label("Cluster", exact=True).focus()
    keys = page.keyboard
    keys.press("Tab")
    keys.type("default")
    keys.press("Tab")
    keys.type("interrupted")
    keys.press("Tab")  # labels
    keys.press("Tab")
    expect(page.get_by_label("Strategy", exact=True)).to_be_focused()
    _choose(page, "OnDelete")
    _tab_to(page, "Reason")
    keys.type("nobody is at work tonight")
    _tab_to(page, "8 hours")
    keys.press("Enter")
    expect(page.get_by_label("Ends at (UTC)")).not_to_have_value("")
    expect(page.locator("#override-check")).to_contain_text("1 would change")
    _tab_to(page, "Save")
    keys.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("is in force. It matches 1 workload")
    row = page.get_by_role("row", name=re.compile("interrupted"))
    expect(row).to_contain_text("in force")
    row.get_by_role("link").first.focus()
    keys.press("Enter")
    page.get_by_role("link", name="End it now").focus()
    keys.press("Enter")
    page.get_by_role("button", name="End the override").focus()
    keys.press("Enter")
    expect(page.get_by_role("row", name=re.compile("interrupted"))).to_contain_text("ended")


def test_a_list_is_filtered_by_keyboard(page: Page) -> None:
    page.goto("/admin/rollouts/auditentry/")
    page.get_by_role("button", name="Filters").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("By result")).to_be_focused()
    page.keyboard.press("Tab")
    _choose(page, "sign_in")
    page.get_by_role("button", name="Apply Filters").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("command=sign_in"))
    # Each row has a tbody of its own.
    expect(page.locator("#result_list tbody").first).to_contain_text("sign_in")
    expect(page.locator("#result_list tbody", has_text="change_account")).to_have_count(0)


def test_components_are_added_suggested_and_removed(page: Page) -> None:
    page.goto(ADD)
    page.get_by_label("Workload", exact=True).fill("agg-multi")
    expect(page.locator("#components-known option")).not_to_have_count(0)
    page.get_by_role("button", name="Add a component").click()
    names = page.get_by_label("Clique or scaling group")
    expect(names.last).to_be_focused()
    names.last.fill("decode")
    page.get_by_label("Surge", exact=True).last.fill("2")
    panel = page.locator("#override-check")
    expect(panel).to_contain_text("maxUnavailable 0, maxSurge 2")
    page.get_by_role("button", name="Remove this component").last.click()
    expect(panel).not_to_contain_text("maxUnavailable 0, maxSurge 2")


def test_every_field_has_a_label_and_every_button_a_name(page: Page) -> None:
    page.goto(ADD)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('#override :is(input, select, textarea), #main :is(button, a)')]
            .filter((one) => one.type !== 'hidden')
            .filter((one) => !(one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim()))
            .map((one) => one.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize("path", PAGES)
def test_no_page_gives_the_browser_anything_to_complain_about(page: Page, path: str) -> None:
    answer = page.goto(path)
    assert answer is not None
    assert answer.status == 200
    expect(page.locator("#main")).to_be_visible()


@pytest.mark.parametrize(
    "path", ["/admin/", LIST, ADD, "/admin/rollouts/auditentry/", "/admin/rollouts/user/1/change/"]
)
def test_a_phone_needs_no_sideways_scrolling(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(path)
    expect(page.locator("#main")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("link", name="Strategy overrides", exact=True).first).to_be_visible()


def test_the_connection_to_a_cluster_is_tested_line_by_line(page: Page) -> None:
    page.goto("/admin/rollouts/cluster/1/change/")
    page.get_by_role("button", name="Test the connection").click()
    expect(page.get_by_role("heading", name="The connection works.")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("Reach"))).to_contain_text("The API server answers")


def _choose(page: Page, value: str) -> None:
    """Go down the list that is focused to one of its values. Typing would do, but only for who types fast enough."""
    for _ in range(80):
        if page.evaluate("document.activeElement.value") == value:
            return
        page.keyboard.press("ArrowDown")
    pytest.fail(f"no key leads to {value!r}")


def _tab_to(page: Page, name: str) -> None:
    """Press Tab until what has this label or text is focused."""
    for _ in range(40):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
                const one = document.activeElement;
                return (one.labels?.[0] ?? one).textContent.trim() || one.getAttribute('aria-label') || '';
            }"""
        )
        if found.startswith(name):
            return
    pytest.fail(f"Tab never comes to {name!r}")
