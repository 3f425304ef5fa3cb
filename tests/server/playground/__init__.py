"""Tests of the playground page. Without Playwright they can be read, and skip with the reason."""

from collections.abc import Callable
from typing import Any

from tests.server.scripted_server import Scripted

try:
    from playwright.sync_api import expect

    from tests.server.playground.page import Playground
except ModuleNotFoundError:  # the browser fixture says why
    expect = Playground = None

Visit = Callable[..., Any]  # opens the page of a server
Start = Callable[..., Scripted]  # starts a server whose model is a script

__all__ = ["Playground", "Start", "Visit", "expect"]
