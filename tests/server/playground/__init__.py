"""Tests of the playground page. Without Playwright they can be read, and skip with the reason."""

from collections.abc import Callable
from typing import Any

try:
    from playwright.sync_api import expect

    from tests.server.playground.page import Playground
except ModuleNotFoundError:  # the browser fixture says why
    expect = Playground = None

Visit = Callable[..., Any]

__all__ = ["Playground", "Visit", "expect"]
