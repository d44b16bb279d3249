"""Debian's Chromium, for tests that click through the page of a server."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

_WATCH = (
    "addEventListener('securitypolicyviolation', (event) => console.error(`violated: ${event.effectiveDirective} ${event.blockedURI}`))"
)
WAIT_MS = 20_000

expect.set_options(timeout=WAIT_MS)


_SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


def screenshots(name: str, otherwise: Path) -> Path:
    """An empty directory for the screenshots of a test; they are still there after a run that passes.

    Args:
        name: Of the directory in build/screenshots.
        otherwise: The directory to use if this user may not write to that one.
    """
    directory = _SCREENSHOTS / name
    try:
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
    except OSError:
        return otherwise
    return directory


class Window(NamedTuple):
    """A page in a browser, and what it did that nobody wants to see."""

    page: Page
    complaints: list[str]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None, "mark the test with tools.needs('chromium')"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])  # the tests may be root's
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def window(browser: Browser, url: str, **options: Any) -> Iterator[Window]:
    """A window with an empty profile.  ``complaints``: errors, violations of the policy, dialogs, and requests to other servers."""
    context = browser.new_context(locale="en-US", timezone_id="America/New_York", **options)
    try:
        context.set_default_timeout(WAIT_MS)
        context.add_init_script(_WATCH)
        yield Window(context.new_page(), _complaints(context, url))
    finally:
        context.close()


def _complaints(context: BrowserContext, url: str) -> list[str]:
    found: list[str] = []

    def said(kind: str, text: str) -> None:
        if not text.startswith("Failed to load resource"):  # an answer that is no success: the tests look at what the page makes of it
            found.append(f"{kind}: {text}")

    context.on("console", lambda message: said("console", message.text) if message.type in {"error", "warning"} else None)
    context.on("weberror", lambda error: said("error", str(error.error)))
    context.on("dialog", lambda dialog: (said("dialog", dialog.message), dialog.dismiss()))
    context.on("request", lambda request: None if _is_of(request.url, url) else said("request", request.url))
    return found


def _is_of(asked: str, url: str) -> bool:
    return asked.startswith("blob:") or urlsplit(asked)[:2] == urlsplit(url)[:2]
