"""A browser, and servers for it to visit."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.browser import chromium
from tests.scripted import Script
from tests.server.scripted_server import ControlledRunner, Scripted, serving

try:
    from playwright.sync_api import Browser

    from tests.server.playground.page import Playground
except ModuleNotFoundError:  # pragma: no cover  the browser fixture then says why
    Playground = None


@pytest.fixture(scope="package")
def browser() -> Iterator["Browser"]:
    with chromium() as browser:
        yield browser


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
