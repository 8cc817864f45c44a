"""A real Chromium in front of the real product: `manage.py run` on the sandbox."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from tests.parts import missing
from tests.project.running import Product, product

PASSWORD = "correct horse battery"
# Each visitor signs in by the form of the page.
QUICK = {"DJANGO_SETTINGS_MODULE": "tests.browser.quick_settings", "GROVE_ADMIN_PASSWORD": PASSWORD}
PATIENCE = 120_000  # milliseconds for anything to come, only reached when something is broken
expect.set_options(timeout=PATIENCE)
# Quiet on a machine without the internet; --no-sandbox because CI runs as root.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def chromium_path() -> str:
    """Find the system's Chromium: the shell without a window if there is one, which needs half the processor time."""
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return missing("Chromium", "install it (Debian: apt-get install chromium-headless-shell)")


# Not for the whole session: Playwright keeps an event loop in this thread for as long as it runs.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The system's Chromium, headless."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The running product."""
    with product(tmp_path_factory.mktemp("site"), **QUICK) as running:
        running.wait_until_it_answers()
        yield running


@pytest.fixture(params=["light", "dark"])
def visitor(request: pytest.FixtureRequest, browser: Browser, site: Product) -> Iterator[BrowserContext]:
    """A visitor who has not signed in, in each theme."""
    context = browser.new_context(base_url=site.url, color_scheme=request.param)
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()
