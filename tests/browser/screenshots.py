"""`python -m tests.browser.screenshots`: the pictures in docs/images, taken from the running product."""

import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import FLAGS, PASSWORD, chromium_path
from tests.project.running import ROOT, Product, product

IMAGES = ROOT / "docs" / "images"


def main() -> None:
    """Start the product, sign in, and take each picture in both themes."""
    with tempfile.TemporaryDirectory() as folder, product(Path(folder), GROVE_ADMIN_PASSWORD=PASSWORD) as running:
        running.wait_until_it_answers()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
            for theme in ("light", "dark"):
                _take(browser, running, theme)
            browser.close()
        running.interrupt()


def _take(browser: Browser, running: Product, theme: str) -> None:
    size = {"width": 1120, "height": 560}
    context = browser.new_context(base_url=running.url, color_scheme=theme, viewport=size)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto("/")
    page.screenshot(path=IMAGES / f"sign-in-{theme}.png")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Everything answers.").wait_for()
    page.screenshot(path=IMAGES / f"overview-{theme}.png", full_page=True)
    context.close()


if __name__ == "__main__":
    main()
