"""The report of a run, opened from disk in a real browser."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium
from tests.evals.command import Command
from tests.evals.runs import line, write_run

try:
    from playwright.sync_api import Browser, Page, expect
except ModuleNotFoundError:  # pragma: no cover  the browser fixture then says why
    expect = None

NASTY = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\n  <b>&amp;"
)


def step(length: int, masks: int, rho: float | None, **more: Any) -> dict[str, Any]:
    """The record of a forward, as an evaluation with --trace keeps it."""
    costs = {"computed": 20, "exact": 20, "refresh": True}
    edits = {"action": "hold", "change": 0, "committed": [], "moved": None, "written": []}
    return {"length": length, "masks": masks, "rho": rho, **costs, **edits, **more}


TRACE = [step(16, 16, 0.25, action="expand", change=8), step(24, 9, 0.5), step(24, 0, None)]
Open = Callable[[Path], "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_report(browser: "Browser", command: Command) -> Iterator[Open]:
    """Opens the report of a folder, which must ask for nothing and complain of nothing."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    complaints: list[str] = []
    requests: list[str] = []

    def open_report(folder: Path) -> "Page":
        result = command("inspect", folder)
        assert result.code == 0 and str(folder / "report.html") in result.out.split("\n")
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((folder / "report.html").as_uri())
        return page

    yield open_report
    hacked = [page.evaluate("window.hacked") for page in context.pages]
    context.close()
    assert complaints == [] and not any(hacked)
    assert all(url.startswith(("data:", "file:")) for url in requests)


@pytest.fixture
def page(open_report: Open, tmp_path: Path) -> "Page":
    lines = [
        line(10, nfe=9, trace=TRACE),
        line(2, nfe=30),
        line(1, correct=False, nfe=12, text=NASTY, prompt=NASTY, extracted=NASTY, trace=TRACE),
        line(3, correct=False, task="tiny-mbpp", nfe=2, finish_reason="length"),
    ]
    return open_report(write_run(tmp_path / "run <b>1", lines, preset="asym"))


def listed(page: "Page") -> list[str]:
    return page.locator("#samples tbody td:first-child").all_inner_texts()


def test_wrong_answers_come_first_and_the_first_is_open(page: "Page") -> None:
    wrong, right = ["tiny-gsm/test/1", "tiny-mbpp/test/3"], ["tiny-gsm/test/2", "tiny-gsm/test/10"]
    assert listed(page) == wrong + right
    expect(page.locator("#detail h2")).to_have_text("tiny-gsm/test/1")
    expect(page.locator("#name")).to_have_text("run <b>1")
    expect(page.locator("#about")).to_contain_text("4 answers, 2 wrong")
    summary = page.locator("#summary").inner_text()
    assert "66.7 [20.8, 93.9]" in summary and "tiny-mbpp" in summary


def test_texts_are_shown_to_the_letter_and_never_run(page: "Page") -> None:
    for field in ("#prompt", "#text"):
        assert page.locator(field).evaluate("node => node.textContent") == NASTY
    assert page.locator("#detail img").count() == 0
    expect(page.locator("#reference")).to_have_text("#### 1")


def test_the_table_sorts_and_filters(page: "Page") -> None:
    page.get_by_role("button", name="NFE", exact=True).click()
    nfe = page.locator("#samples tbody td:nth-child(6)")
    assert nfe.all_inner_texts() == ["2", "9", "12", "30"]
    page.get_by_role("button", name="NFE", exact=True).click()
    assert nfe.all_inner_texts() == ["30", "12", "9", "2"]
    expect(page.locator("th[aria-sort=descending]")).to_have_text("NFE")
    page.get_by_role("button", name="sample").click()
    assert listed(page)[:3] == [f"tiny-gsm/test/{n}" for n in (1, 2, 10)]  # numbers as numbers

    page.locator("#verdict").select_option("right")
    assert listed(page) == ["tiny-gsm/test/2", "tiny-gsm/test/10"]
    expect(page.locator("#count")).to_have_text("2 of 4")
    page.locator("#search").fill("ANSWER 10")
    assert listed(page) == ["tiny-gsm/test/10"]
    page.locator("#search").fill("")
    page.locator("#verdict").select_option("")
    page.locator("#task").select_option("tiny-mbpp")
    assert listed(page) == ["tiny-mbpp/test/3"]
    page.locator("#task").select_option("")
    page.locator("#finish").select_option("length")
    assert listed(page) == ["tiny-mbpp/test/3"]


def test_curves_have_a_point_per_step_and_a_gap_where_there_is_no_rho(page: "Page") -> None:
    rho = page.locator("path.rho").get_attribute("d") or ""
    length = page.locator("path.length").get_attribute("d") or ""
    assert rho.count("M") + rho.count("L") == 2
    assert length.count("M") + length.count("L") == 3
    points = [tuple(map(float, point.split())) for point in rho.strip("M").split("L")]
    assert points[0][0] < points[1][0] and points[0][1] > points[1][1]  # ρ rose
    box = page.locator("rect.band")
    top = float(box.get_attribute("y") or 0)
    bottom = top + float(box.get_attribute("height") or 0)
    assert top < points[1][1] < bottom < points[0][1]  # 0.5 is in [0.4, 0.8], 0.25 is not
    page.get_by_text("tiny-gsm/test/2", exact=True).click()
    expect(page.locator("#detail")).to_contain_text("without --trace")


REPLAYED = [
    step(4, 4, 0.5, action="insert", change=2, committed=[[0, 7, 0.9], [3, 8, 0.5]])
    | {"moved": [[0, 1], [None, 2], [1, 3]]},
    step(6, 4, 0.5, action="overwrite", committed=[[1, 9, 0.95]])
    | {"moved": [[0, 6]], "written": [[0, None], [5, 2]]},
    step(6, 4, 0.5, action="contract", change=-1) | {"moved": [[0, 5]]},
]


def test_the_canvas_is_replayed_by_what_moved_and_was_written(
    open_report: Open, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "run", [line(1, nfe=3, trace=REPLAYED)])
    about = json.loads((folder / "run.json").read_text())
    about["settings"]["params"] = {"policy": "of somebody else", "strength": 3}
    (folder / "run.json").write_text(json.dumps(about))
    page = open_report(folder)
    expect(page.locator("#about")).to_contain_text("of somebody else")
    filled = "nodes => nodes.map(node => node.className === 'filled')"
    cells = page.locator("#canvas i")
    for forward, want in enumerate(["0000", "100001", "010001", "01000"]):
        page.get_by_label("Forward").fill(str(forward))
        assert cells.evaluate_all(filled) == [sign == "1" for sign in want], forward
    expect(cells.nth(1)).to_have_attribute("title", "token 9, confidence 0.95, forward 2")


def test_a_cached_run_shows_both_costs_and_its_windows(open_report: Open, tmp_path: Path) -> None:
    trace = [
        step(16, 9, rho, computed=computed, refresh=rho is not None)
        for rho, computed in ((0.3, 20), (None, 6), (None, 7), (0.6, 20), (None, 5))
    ]
    costs = {"positions_evaluated": 58, "positions_exact": 100, "refreshes": 2}
    page = open_report(write_run(tmp_path / "run", [line(1, nfe=5, trace=trace, **costs)]))
    head = page.locator("#samples th").all_inner_texts()
    row = page.locator("#samples tbody td").all_inner_texts()
    shown = dict(zip(head, row, strict=True))
    assert (shown["positions"], shown["exact"], shown["refreshes"]) == ("58", "100", "2")
    rho = page.locator("path.rho").get_attribute("d") or ""
    assert (rho.count("M"), rho.count("L")) == (1, 1)  # over the windows, in which there is none
    computed = page.locator("path.computed").get_attribute("d") or ""
    assert computed.count("M") + computed.count("L") == 5
    assert page.locator("path.exact").count() == 1


def test_a_run_in_blocks_shows_what_was_computed_though_nothing_was_unseen(
    open_report: Open, tmp_path: Path
) -> None:
    trace = [step(16, 9, 0.5, computed=computed) for computed in (20, 8, 8)]
    costs = {"positions_evaluated": 36, "positions_exact": 60, "positions_reused": 12}
    lines = [line(1, nfe=3, trace=trace, **costs), line(2)]  # one was made by an older version
    page = open_report(write_run(tmp_path / "run", lines))
    head = page.locator("#samples th").all_inner_texts()
    at = head.index("reused")
    cells = page.locator(f"#samples tbody td:nth-child({at + 1})").all_inner_texts()
    assert sorted(cells) == ["12", "–"]
    page.get_by_text("tiny-gsm/test/1", exact=True).first.click()
    computed = page.locator("path.computed").get_attribute("d") or ""
    assert computed.count("M") + computed.count("L") == 3


def test_samples_are_reached_by_keys_and_by_link(page: "Page") -> None:
    report = page.url
    page.locator("#samples tbody tr").first.click()
    page.keyboard.press("ArrowDown")
    for link, sample in ((page.url, "tiny-mbpp/test/3"), (f"{report}#%", "tiny-gsm/test/1")):
        expect(page.locator("#detail h2")).to_have_text("tiny-mbpp/test/3")
        page.goto("about:blank")
        page.goto(link)
        expect(page.locator("#detail h2")).to_have_text(sample)


def test_it_fits_a_narrow_screen_and_shows_every_column_on_a_wide_one(
    open_report: Open, tmp_path: Path
) -> None:
    """With the longest names and largest numbers that our tasks have."""
    large = {"n_token": 2048, "e_token": 2048, "nfe": 2048, "positions_evaluated": 4_194_304}
    lines = [
        line(499, task="tiny-humaneval", adjustments=100, tokens_per_forward=12.34, **large)
        | {"finish_reason": "length", "extracted": "    # 1) if it is below 12, double it"}
    ]
    page = open_report(write_run(tmp_path / "run", lines))
    last, rows = page.locator("#samples tbody td").last, page.locator(".rows")
    expect(last).to_have_text("length")
    right = "node => node.getBoundingClientRect().right"
    assert last.evaluate(right) <= rows.evaluate(right) + 0.5
    first = page.locator("#samples tbody td").first
    assert first.evaluate("node => node.scrollWidth <= node.clientWidth"), "the id is cut"
    page.set_viewport_size({"width": 380, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    expect(page.locator("#text")).to_be_visible()


def test_a_sweep_gets_a_page_that_leads_to_its_runs(
    open_report: Open, command: Command, tmp_path: Path
) -> None:
    sweep = tmp_path / "sweep"
    for name, right in (("asym", True), ("fixed #256 <b>", False)):
        write_run(sweep / name, [line(n, correct=right or n < 2, nfe=n) for n in range(1, 9)])
    page = open_report(sweep)
    runs, tests = page.locator("table").all()
    assert "100.0" in runs.inner_text() and "12.5" in runs.inner_text()
    assert "p" in tests.locator("th").all_inner_texts()
    for name in ("fixed #256 <b>", "asym"):
        runs.get_by_text(name, exact=True).click()
        expect(page.locator("#name")).to_have_text(name)
        page.go_back()
    elsewhere = tmp_path / "page.html"
    assert command("inspect", sweep, "--out", elsewhere).code == 0
    assert 'href="sweep/asym/report.html"' in elsewhere.read_text()
    empty = command("inspect", tmp_path)
    assert empty.code == 2 and "is no run" in empty.err
