"""`python -m tests.browser.screenshots [--folder FOLDER] [name …]`: pictures of the running product.

Without a folder it takes the pictures that README and docs show, in both themes, into docs/images. With a folder it
takes every page and state in both themes and three widths, to compare them before and after a change; names limit it to
the pages whose name begins with one of them. The format is WebP, which keeps files small.
"""

import argparse
import base64
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.conftest import FLAGS, PASSWORD, chromium_path
from tests.browser.visiting import Sandbox, open_settled, sign_in
from tests.project.running import ROOT, product

DOCUMENTED: Final = ("workloads", "workload-waiting", "workload-large")
THEMES: Final = ("light", "dark")
WIDTHS: Final = {"wide": 1440, "middle": 1024, "phone": 390}
TALLEST: Final = 1300  # the rest of a page is cut off
QUALITY: Final = 65
STUCK: Final = "ranker"  # has a node of its own, with room for exactly its pods
LARGE: Final = "thousand"


@dataclass(frozen=True, slots=True)
class Shot:
    """A page, or a state of one."""

    name: str
    address: str
    # Prepares the page before the picture is taken.
    act: Callable[[Page], None] = lambda _: None
    sizes: tuple[str, ...] = tuple(WIDTHS)


@dataclass(frozen=True, slots=True)
class Album:
    """The pictures to take, and where to put them."""

    folder: Path
    prefixes: tuple[str, ...] = ("",)  # of the names of pages
    is_documentation: bool = False  # only the pictures that README and docs show

    def wants(self, name: str) -> bool:
        """Return whether a page is to be taken."""
        return name in DOCUMENTED if self.is_documentation else name.startswith(self.prefixes)

    def choose_sizes(self, sizes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the widths to take of those that a page has."""
        return ("wide",) if self.is_documentation else sizes


def _open_keys(page: Page) -> None:
    page.keyboard.press("?")


def _show_the_usual_folder(page: Page) -> None:
    """Show the default data folder in commands."""
    code = page.locator("code", has_text="KUBECONFIG")
    code.evaluate(
        "code => { code.textContent = code.textContent.replace(/KUBECONFIG=\\S+\\//, 'KUBECONFIG=$PWD/var/') }"
    )


def _workload(name: str) -> str:
    return f"/workloads/sandbox/default/{name}/"


def _wait_for_preview(page: Page) -> None:
    page.locator("#preview").get_by_text("lowest capacity").first.wait_for()


def _form(name: str, workload: str, act: Callable[[Page], None] = lambda _: None) -> Shot:
    """Return a page with a command form, on a desktop and on a phone."""
    address = f"{_workload(workload)}{name}"
    return Shot(f"command-{name.partition('/')[0]}", address, act, ("wide", "phone"))


# Settled pages, then pages after the changes of `_stir`.
QUIET: Final = (
    Shot("workloads-settled", "/"),
    Shot("workloads-none", "/?search=nothing+like+it"),
    Shot("nodes", "/nodes/"),
    Shot("overrides", "/overrides/"),
    Shot("clusters", "/clusters/", _show_the_usual_folder),
    Shot("audit", "/audit/"),
    Shot("account", "/account/"),
    Shot("tokens", "/tokens/"),
    Shot("help", "/help/"),
    Shot("keyboard", "/", _open_keys),
    Shot("workload-settled", _workload("disagg-surge")),
    _form("strategy/", "disagg-surge", _wait_for_preview),
    _form("images/", "disagg-surge"),
    _form("scale/", "disagg-surge"),
    _form("restart/", "disagg-surge", _wait_for_preview),
    _form("apply/", "disagg-surge"),
    _form("delete/", "disagg-surge"),
)
STIRRED: Final = (
    Shot("workloads", "/"),
    Shot("workloads-cards", "/?view=cards"),
    Shot("workload-waiting", _workload("training-workload")),
    Shot("workload-rolling", _workload("chat-single")),
    Shot("workload-stuck", _workload(STUCK)),
    _form("pods/?all=1", "training-workload", _wait_for_preview),
    _form("no-surge/", STUCK, _wait_for_preview),
    _form("roll-back/1/", "training-workload"),
)
GROWN: Final = (Shot("workload-large", _workload(LARGE)),)


def main() -> None:
    """Start the product and take the pictures."""
    album = _parse_album()
    album.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, product(Path(folder), GROVE_ADMIN_PASSWORD=PASSWORD) as running:
        running.wait_until_it_answers()
        with _browser() as browser:
            _take_sign_in(browser, running.url, album)
            contexts = [_signed_in(browser, running.url, theme) for theme in THEMES]
            _take_all(contexts, QUIET, album)
            _stir(Sandbox(running), contexts[0])
            _take_all(contexts, STIRRED, album)
            if album.wants(GROWN[0].name):
                _grow(Sandbox(running), contexts[0])
                _take_all(contexts, GROWN, album)
        running.interrupt()


def _parse_album() -> Album:
    parser = argparse.ArgumentParser(prog="tests.browser.screenshots")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.folder is None:
        return Album(ROOT / "docs" / "images", is_documentation=True)
    return Album(given.folder, tuple(given.names) or ("",))


@contextmanager
def _browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        yield launched
        launched.close()


def _signed_in(browser: Browser, url: str, theme: str) -> BrowserContext:
    context = browser.new_context(base_url=url, color_scheme=theme)  # type: ignore[arg-type]
    sign_in(context).close()
    return context


def _stir(sandbox: Sandbox, context: BrowserContext) -> None:
    """Update a workload under OnDelete, one to an image that never becomes ready, and one without room for surge."""
    sandbox.add_node(STUCK, 3)
    sandbox.add_pods(STUCK, 3, (0, 1))
    page = context.new_page()
    open_settled(page, STUCK)
    sandbox.set_image(STUCK, "example/ranker:v2")
    page.locator("#now").get_by_text("Surge cannot be scheduled").wait_for()
    sandbox.set_image("training-workload", "example/trainer:v2")
    sandbox.set_image("chat-single", "example/chat:broken")
    page.goto("/")
    for name, words in (("training-workload", "for you"), ("chat-single", "outdated")):
        page.locator("#workload-rows > tr", has_text=name).get_by_text(words).wait_for()
    page.close()


def _grow(sandbox: Sandbox, context: BrowserContext) -> None:
    """Add a large workload and start its rollout."""
    sandbox.add_large()
    page = context.new_page()
    page.set_default_timeout(600_000)
    open_settled(page, LARGE)
    sandbox.set_image(LARGE, "example/expert:v2")
    page.locator("#replica-120 .current.ready").first.wait_for()
    page.close()


def _take_all(contexts: list[BrowserContext], shots: tuple[Shot, ...], album: Album) -> None:
    for shot in shots:
        if album.wants(shot.name):
            for context, theme in zip(contexts, THEMES, strict=True):
                _take(context, shot, theme, album)


def _take(context: BrowserContext, shot: Shot, theme: str, album: Album) -> None:
    page = context.new_page()
    for size in album.choose_sizes(shot.sizes):
        page.set_viewport_size({"width": WIDTHS[size], "height": 800})
        page.goto(shot.address)
        page.locator('#live[data-state="live"]').wait_for()
        shot.act(page)
        _save(page, album.folder / f"{shot.name}-{theme}-{size}.webp")
    page.close()


def _take_sign_in(browser: Browser, url: str, album: Album) -> None:
    if not album.wants("sign-in"):
        return
    for theme in THEMES:
        context = browser.new_context(base_url=url, color_scheme=theme)
        page = context.new_page()
        for size, width in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": 560})
            page.goto("/sign-in/")
            _save(page, album.folder / f"sign-in-{theme}-{size}.webp")
        context.close()


def _save(page: Page, path: Path) -> None:
    height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST)
    page.set_viewport_size({"width": page.viewport_size["width"], "height": height})  # type: ignore[index]
    session = page.context.new_cdp_session(page)
    answer = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    path.write_bytes(base64.b64decode(answer["data"]))
    session.detach()


if __name__ == "__main__":
    main()
