"""A command that the cluster does not answer, or refuses, stays told above its form while the form is tried again."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.visiting import Sandbox, find_barriers, open_settled, sign_in
from tests.project.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAME = "refused"
WORKLOAD = f"/workloads/sandbox/default/{NAME}/"


@pytest.fixture(scope="module")
def page(browser: Browser, site: Product) -> Iterator[Page]:
    """A page of somebody who may do everything, with a workload to command."""
    sandbox = Sandbox(site)
    sandbox.add(NAME)
    context = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    opened = sign_in(context)
    open_settled(opened, NAME)
    yield opened
    context.close()
    sandbox.remove(NAME)


@contextmanager
def silent(site: Product) -> Iterator[None]:
    """Let nobody answer in the cluster for a while."""
    (sandbox,) = [pid for pid, line in site.processes().items() if "rollouts.sandbox" in line]
    os.kill(sandbox, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(sandbox, signal.SIGCONT)


def expect_told(page: Page, words: str) -> None:
    """Expect a refusal above the form, also once the form has been tried anew beneath it."""
    refused = page.locator("#command-error")
    expect(refused).to_contain_text(words)
    expect(page.locator("#preview")).not_to_contain_text("No preview yet.")
    expect(page.locator("#preview[aria-busy]")).to_have_count(0)
    expect(refused).to_be_visible()
    told, form = (one.bounding_box() for one in (refused, page.locator("#command-form fieldset").first))
    assert told is not None
    assert form is not None
    assert told["y"] + told["height"] <= form["y"]


def test_a_command_that_is_not_answered_is_told_above_the_form_which_keeps_its_input(page: Page, site: Product) -> None:
    page.goto(f"{WORKLOAD}scale/")
    number = page.get_by_label(NAME, exact=True)
    number.fill("2")
    expect(page.locator("#preview")).to_contain_text("1 pod more", use_inner_text=False)
    with silent(site):
        page.get_by_role("button", name="Scale", exact=True).click()
        expect_told(page, "The cluster sandbox did not answer.")
        expect(number).to_have_value("2")
    assert find_barriers(page) == []
    open_settled(page, NAME)


def test_a_manifest_that_the_cluster_refuses_is_told_above_the_form(page: Page) -> None:
    page.goto(f"{WORKLOAD}apply/")
    manifest = page.locator("textarea")
    written = manifest.input_value().replace("metadata:\n", "metadata:\n  labels:\n    team: not a label\n", 1)
    manifest.fill(written)
    page.get_by_role("button", name="Apply", exact=False).first.click()
    expect_told(page, "not a label")
    expect(manifest).to_have_value(written)


def test_a_command_that_was_carried_out_is_not_marked_as_a_problem(page: Page) -> None:
    page.goto(f"{WORKLOAD}restart/")
    page.get_by_role("button", name="Restart the pods").click()
    page.wait_for_url(f"**{WORKLOAD}")
    expect(page.locator("main > .notice").first).to_have_class("notice good")
    newest = page.locator("#commands li").filter(has_text="restart").first
    expect(newest).to_contain_text("Done")
    expect(newest).to_have_class("done")
    open_settled(page, NAME)
