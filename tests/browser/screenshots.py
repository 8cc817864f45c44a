"""`python -m tests.browser.screenshots [name …]`: the pictures in docs/images, taken from the running product.

Every page and state, in both themes and three widths, as WebP, which keeps them small. Told names, only pages whose
name begins with one of them are taken.
"""

import base64
import sys
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

IMAGES: Final = ROOT / "docs" / "images"
THEMES: Final = ("light", "dark")
WIDTHS: Final = {"wide": 1440, "middle": 1024, "phone": 390}
TALLEST: Final = 1300  # what is below is cut: a picture shows what a page is like
QUALITY: Final = 65
STUCK: Final = "ranker"  # has a node of its own, with room for its pods and no more
LARGE: Final = "thousand"


@dataclass(frozen=True, slots=True)
class Shot:
    """A page, or a state of one."""

    name: str
    address: str
    # What somebody does before the picture is taken.
    act: Callable[[Page], None] = lambda _: None
    sizes: tuple[str, ...] = tuple(WIDTHS)


def _open_keys(page: Page) -> None:
    page.keyboard.press("?")


def _show_the_usual_folder(page: Page) -> None:
    """Have commands name the folder that data is in unless somebody chooses another one."""
    code = page.locator("code", has_text="KUBECONFIG")
    code.evaluate(
        "code => { code.textContent = code.textContent.replace(/KUBECONFIG=\\S+\\//, 'KUBECONFIG=$PWD/var/') }"
    )


def _workload(name: str) -> str:
    return f"/workloads/sandbox/default/{name}/"


def _wait_for_trial(page: Page) -> None:
    page.locator("#preview").get_by_text("lowest capacity").first.wait_for()


def _form(name: str, workload: str, act: Callable[[Page], None] = lambda _: None) -> Shot:
    """Take a page from which people command: as wide as at a desk, and on a phone."""
    address = f"{_workload(workload)}{name}"
    return Shot(f"steer-{name.partition('/')[0]}", address, act, ("wide", "phone"))


# Pages as they are when nothing happens, then what the changes in `_stir` make of them.
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
    _form("strategy/", "disagg-surge", _wait_for_trial),
    _form("images/", "disagg-surge"),
    _form("scale/", "disagg-surge"),
    _form("restart/", "disagg-surge", _wait_for_trial),
    _form("apply/", "disagg-surge"),
    _form("delete/", "disagg-surge"),
)
STIRRED: Final = (
    Shot("workloads", "/"),
    Shot("workloads-cards", "/?view=cards"),
    Shot("workload-waiting", _workload("training-workload")),
    Shot("workload-rolling", _workload("chat-single")),
    Shot("workload-stuck", _workload(STUCK)),
    _form("pods/?all=1", "training-workload", _wait_for_trial),
    _form("no-surge/", STUCK, _wait_for_trial),
    _form("roll-back/1/", "training-workload"),
)
GROWN: Final = (Shot("workload-large", _workload(LARGE)),)


def main() -> None:
    """Start the product and take the pictures."""
    wanted = tuple(sys.argv[1:])
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, product(Path(folder), GROVE_ADMIN_PASSWORD=PASSWORD) as running:
        running.wait_until_it_answers()
        with _browser() as browser:
            _take_sign_in(browser, running.url, wanted)
            contexts = [_signed_in(browser, running.url, theme) for theme in THEMES]
            _take_all(contexts, QUIET, wanted)
            _stir(Sandbox(running), contexts[0])
            _take_all(contexts, STIRRED, wanted)
            if _is_wanted(GROWN[0], wanted):
                _grow(Sandbox(running), contexts[0])
                _take_all(contexts, GROWN, wanted)
        running.interrupt()


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
    """Change a workload that waits for people, one to an image that never becomes ready, and one without room."""
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
    """Add a large workload, and have it rolling."""
    sandbox.add_large()
    page = context.new_page()
    page.set_default_timeout(600_000)
    open_settled(page, LARGE)
    sandbox.set_image(LARGE, "example/expert:v2")
    page.locator("#replica-120 .current.ready").first.wait_for()
    page.close()


def _is_wanted(shot: Shot, wanted: tuple[str, ...]) -> bool:
    return shot.name.startswith(wanted or ("",))


def _take_all(contexts: list[BrowserContext], shots: tuple[Shot, ...], wanted: tuple[str, ...]) -> None:
    for shot in shots:
        if _is_wanted(shot, wanted):
            for context, theme in zip(contexts, THEMES, strict=True):
                _take(context, shot, theme)


def _take(context: BrowserContext, shot: Shot, theme: str) -> None:
    page = context.new_page()
    for size in shot.sizes:
        page.set_viewport_size({"width": WIDTHS[size], "height": 800})
        page.goto(shot.address)
        page.locator('#live[data-state="live"]').wait_for()
        shot.act(page)
        _save(page, f"{shot.name}-{theme}-{size}")
    page.close()


def _take_sign_in(browser: Browser, url: str, wanted: tuple[str, ...]) -> None:
    if not "sign-in".startswith(wanted or ("",)):
        return
    for theme in THEMES:
        context = browser.new_context(base_url=url, color_scheme=theme)
        page = context.new_page()
        for size, width in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": 560})
            page.goto("/sign-in/")
            _save(page, f"sign-in-{theme}-{size}")
        context.close()


def _save(page: Page, name: str) -> None:
    height = min(page.evaluate("document.documentElement.scrollHeight"), TALLEST)
    page.set_viewport_size({"width": page.viewport_size["width"], "height": height})  # type: ignore[index]
    session = page.context.new_cdp_session(page)
    answer = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    (IMAGES / f"{name}.webp").write_bytes(base64.b64decode(answer["data"]))
    session.detach()


if __name__ == "__main__":
    main()
