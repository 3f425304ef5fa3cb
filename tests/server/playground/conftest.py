"""A browser, and servers for it to visit."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.scripted import Script
from tests.server.scripted_server import ControlledRunner, Scripted, serving
from tests.support import require

try:
    from playwright.sync_api import Browser, sync_playwright

    from tests.server.playground.page import Playground
except ModuleNotFoundError:  # pragma: no cover  the browser fixture then says why
    sync_playwright = None

CHROMIUM = "/usr/bin/chromium"
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(scope="package")
def browser() -> Iterator["Browser"]:
    require(sync_playwright is not None, "the package playwright is not installed")
    require(shutil.which(CHROMIUM) is not None, f"there is no Chromium at {CHROMIUM}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: "Browser") -> Iterator[Callable[..., "Playground"]]:
    """Open the page of a server; afterwards every visit is checked for its manners."""
    visits: list[Playground] = []

    def open_page(url: str, **context: Any) -> Playground:
        page = browser.new_context(**context).new_page()
        visits.append(Playground(page, url))
        return visits[-1]

    yield open_page
    for each in visits:
        each.page.context.close()
        each.check_manners()


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    """A server whose model is a script; `seconds` is what a forward takes."""
    with ExitStack() as stack:

        def start(script: Script, seconds: float = 0.0, **config: Any) -> Scripted:
            return stack.enter_context(serving(ControlledRunner(script, seconds), **config))

        yield start
