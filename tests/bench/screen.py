"""A real browser among many viewers: when its screen shows a change. For `tests.bench.viewers --browser`."""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin

from playwright.async_api import async_playwright

from tests.browser.conftest import FLAGS, PATIENCE, chromium_path

# The frame after a part was replaced: by then it is drawn.
_NOTE: Final = """() => {
  window.groveLooksFor = []
  window.groveSeen = {}
  const note = () => {
    for (const name of window.groveLooksFor) {
      const isReady = document.getElementById(`pod-${name}`)?.classList.contains("ready")
      if (!isReady) window.groveSeen[name] ??= Date.now() / 1000
    }
  }
  document.addEventListener("live:refreshed", () => requestAnimationFrame(() => setTimeout(note)))
}"""


@dataclass(frozen=True, slots=True)
class Screen:
    """A page that records when it no longer shows pods as ready."""

    page: Any

    async def look_for(self, pod: str) -> None:
        """Record when the page shows this pod as not ready."""
        await self.page.evaluate("name => window.groveLooksFor.push(name)", pod)

    async def tell(self) -> Mapping[str, float]:
        """Return when the page showed each pod, by the monotonic clock."""
        seen = await self.page.evaluate("() => window.groveSeen")
        return {name: at - time.time() + time.monotonic() for name, at in seen.items()}


@contextlib.asynccontextmanager
async def open_screen(address: str, cookies: Mapping[str, str]) -> AsyncIterator[Screen]:
    """Open a page in Chromium, signed in, and wait until it is live."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        context = await browser.new_context()
        site = urljoin(address, "/")
        await context.add_cookies([{"name": name, "value": value, "url": site} for name, value in cookies.items()])
        page = await context.new_page()
        await page.goto(address)
        await page.evaluate(_NOTE)
        await page.locator('#live[data-state="live"]').wait_for(timeout=PATIENCE)
        yield Screen(page)
        await browser.close()
