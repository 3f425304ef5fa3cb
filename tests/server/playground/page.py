"""The playground as its visitor sees it: a page object over a real browser."""

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, expect

PATIENCE = 90_000  # milliseconds; a busy machine is slow, a broken page never gets there
expect.set_options(timeout=PATIENCE)


@dataclass
class Playground:
    """One visit. `complaints` and `requests` are collected from the first moment on."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    forgiven: tuple[str, ...] = ()  # complaints that begin so

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", self._note_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._note_request)

    def open(self, prompt: str | None = "hello", **state: Any) -> "Playground":
        """Load the page with settings in the address: `a__policy="fixed"` is panel a's policy."""
        if prompt is not None:
            state["prompt"] = prompt
        query = urlencode({name.replace("__", "."): value for name, value in state.items()})
        self.page.goto(f"{self.url}/#{query}")
        expect(self.run_button).to_be_enabled()
        return self

    def run(self) -> "Playground":
        """Press Run and wait until the last forward is on show."""
        self.run_button.click()
        expect(self.page.locator("#scrubber")).to_be_enabled()
        self.wait_until_idle()
        return self

    def wait_until_idle(self) -> None:
        expect(self.run_button).to_have_text(re.compile("^(Run|Send)$"))

    def send(self, message: str) -> "Playground":
        """A turn of a conversation, with its answer."""
        turns = self.at(".turn").count()
        self.at("#prompt").fill(message)
        self.at("#prompt").press("Enter")
        expect(self.at(".turn")).to_have_count(turns + 1)
        expect(self.at(".turn small").last).not_to_be_empty()
        self.wait_until_idle()
        return self

    def seek(self, forward: int) -> None:
        self.page.locator("#scrubber").fill(str(forward))

    def at(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def side(self, name: str) -> Locator:
        return self.page.locator(f'.panel[data-side="{name}"]')

    @property
    def run_button(self) -> Locator:
        return self.page.locator("#run")

    @property
    def forwards(self) -> int:
        return int(self.page.locator("#scrubber").get_attribute("max") or 0)

    def figure(self, name: str, side: str = "a") -> str:
        return self.side(side).locator(f'[data-figure="{name}"]').inner_text()

    def cells(self, side: str = "a") -> list[str | None]:
        """The canvas, position by position: None for a MASK, "END" for an end, else the text."""
        return self.side(side).evaluate(
            """panel => [...panel.querySelectorAll(".canvas .cell:not(.leaving)")].map(cell =>
                cell.matches(".mask") ? null : cell.matches(".end") ? "END" : cell.textContent)"""
        )

    def text(self, side: str = "a") -> str:
        """What stands before the first end."""
        cells = self.cells(side)
        end = cells.index("END") if "END" in cells else len(cells)
        return "".join(cell or "" for cell in cells[:end])

    def line_points(self, side: str = "a") -> list[int]:
        """How many forwards each chart's line (ρ, L) has been drawn through, at one moment."""
        return self.side(side).evaluate(
            """panel => [...panel.querySelectorAll("figure:not([hidden]) .chart")].map(chart =>
                (chart.querySelector(".line:not(.ahead, .second)").getAttribute("d") ?? "")
                    .replace(/[^ML]/g, "").length)"""
        )

    @property
    def scrolls_sideways(self) -> bool:
        root = "document.documentElement"
        return self.page.evaluate(f"{root}.scrollWidth > {root}.clientWidth")

    def check_manners(self) -> None:
        """Nothing in the console, and nobody but this server was asked for anything."""
        assert [each for each in self.complaints if not each.startswith(self.forgiven)] == []
        own = f"blob:{self.url}/"  # what the page made itself
        hosts = {urlsplit(url).netloc for url in self.requests if not url.startswith(own)}
        assert hosts <= {urlsplit(self.url).netloc}, hosts

    def expect_failed_requests(self) -> None:
        """The browser reports a refused request in the console, perhaps after this call; that
        alone is forgiven."""
        self.forgiven = ("Failed to load resource",)

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _note_request(self, request: Request) -> None:
        self.requests.append(request.url)
