"""Watching a generation in a real browser: what is drawn is what the engine did."""

import re
from typing import Any

import pytest

from rho_eos import LLM, DecodeParams
from rho_eos.engine.replay import Replay
from tests.scripted import SPECIAL, Script, arbitrary, decode, run_one, says
from tests.server.conftest import Process
from tests.server.playground import Start, Visit, expect

SHORT: dict[str, Any] = {"a__initial_length": 16, "a__max_tokens": 48}


def test_a_run_shows_what_the_library_computes(server: Process, visit: Visit, llm: LLM) -> None:
    want = llm.generate(["hello"], DecodeParams(initial_length=16, max_new_tokens=48))[0].usage
    page = visit(server.url).open("hello", **SHORT).run()
    expect(page.side("a").locator(".pill")).to_have_text("canvas full")
    assert page.figure("nfe") == str(want.nfe)
    assert page.figure("positions") == f"{want.positions_evaluated:,}"
    assert page.figure("tokensPerForward") == f"{want.tokens_per_forward:.2f}"
    assert page.figure("eRatio") == f"{round(100 * want.e_ratio)}%"
    assert len(page.cells()) == want.n_token
    assert page.line_points() == [want.nfe, want.nfe]


def test_the_curve_of_the_length_is_drawn(server: Process, visit: Visit, llm: LLM) -> None:
    """What it says in words is what the last step's record says."""
    params = DecodeParams(policy="quantile", look=64, max_new_tokens=96, trace=True)
    [output] = llm.generate(["hello"], params)
    told = [record.foretold for record in output.trace if record.foretold is not None]
    page = visit(server.url)
    page.open("hello", a__policy="quantile", a__look=64, a__max_tokens=96).run()
    picture = page.side("a").locator(".foretold")
    expect(picture).to_be_visible()
    expect(page.side("a").locator(".foretold-words")).to_contain_text(
        f"It expects {round(told[-1].expected)}."
    )
    assert picture.locator("path.foretold-line").get_attribute("d").count("L") == 32


def test_a_second_text_brings_a_policy_that_can_fill_the_gap(
    server: Process, visit: Visit, llm: LLM
) -> None:
    want = llm.infill("ab", "yz")
    page = visit(server.url).open("ab")
    chosen = page.side("a").get_by_label("Length policy")
    rho_eos, fixed = (chosen.locator(f"option[value='{name}']") for name in ("rho-eos", "fixed"))
    page.at("#suffix-box summary").click()
    page.at("#suffix").fill("yz")
    expect(rho_eos).to_be_disabled()
    expect(fixed).to_be_enabled()
    page.run()
    assert page.figure("positions") == f"{want.usage.positions_evaluated:,}"
    page.at("#suffix").fill("")  # what had to give way is back
    assert "suffix" not in page.page.url
    expect(chosen).to_have_value("rho-eos")
    page.at("#suffix").fill("yz")
    page.at("#tab-chat").click()  # an answer has nothing behind it
    expect(chosen).to_have_value("rho-eos")


def test_gaps_in_the_text_are_filled_and_a_question_may_stand_before_them(
    server: Process, visit: Visit, llm: LLM
) -> None:
    page = visit(server.url).open("a___{4}b", a__seed=3)
    page.at("#suffix-box summary").click()
    for question in ("", "Which?"):
        page.at("#question").fill(question)
        want = llm.fill("a___{4}b", prompt=question or None, seed=3)
        page.run()
        assert page.figure("positions") == f"{want.usage.positions_evaluated:,}"
        assert "template=1" in page.page.url
    page.at("#prompt").fill("ab")  # beside a gap with text behind it as well
    page.at("#suffix").fill("yz")
    want = llm.fill("ab___yz", prompt="Which?", seed=3)
    page.run()
    assert page.figure("positions") == f"{want.usage.positions_evaluated:,}"


SCRIPT = arbitrary(3, [0.1, 0.9, 0.5], sure=0.1)
CHANGES = {"hold", "expand", "contract"}
WINO = {"commit": "wino", "draft": 0.5, "verify": 0.4, "block_length": 16}


@pytest.mark.parametrize(
    ("script", "params", "actions"),
    [
        (SCRIPT, {"horizon": 30, "expansion": "constant", "block_length": 8}, CHANGES),
        (
            arbitrary(5, [0.1, 0.1, 0.5, 0.2, 0.2], sure=0.3),
            {"policy": "daedal", "signal": "density", "rho_low": 0.3, "rho_high": 0.8},
            {"hold", "expand", "close", "insert"},
        ),
        (
            SCRIPT,
            {"policy": "released", "rho_low": 0.15, "rho_high": 0.3, "expansion": "constant"},
            CHANGES,
        ),
        (arbitrary(1, [0.1, 0.9, 0.5], sure=0.3), WINO | {"expansion": "constant"}, CHANGES),
    ],
    ids=["rho-eos", "daedal", "released", "a rule that takes back"],
)
def test_every_scrubber_position_is_the_canvas_of_that_step(
    scripted: Start, visit: Visit, script: Script, params: dict[str, Any], actions: set[str]
) -> None:
    settings = {"initial_length": 32, "early_stop": False, **params}
    trace = run_one(script, DecodeParams(**settings, max_new_tokens=80, trace=True)).trace
    assert {record.action for record in trace} == actions
    replay = Replay(32)
    frames = [replay_frame(replay)]
    for record in trace:
        replay.apply(record)
        frames.append(replay_frame(replay))
    fields = {f"a__{name}": str(value).lower() for name, value in settings.items()}
    page = visit(scripted(script).url).open("?", **fields, a__max_tokens=80).run()
    assert page.forwards == len(trace)
    for forward in [*range(len(frames)), *range(len(frames) - 1, -1, -5)]:
        page.seek(forward)
        assert page.cells() == frames[forward], f"after forward {forward}"
        taken = sum(token is None for _, token in trace[forward - 1].written) if forward else 0
        assert page.side("a").locator(".canvas .mask.fresh").count() == taken


def replay_frame(replay: Replay) -> list[str | None]:
    def show(token: int | None) -> str | None:
        if token is None:
            return None
        return "END" if token in SPECIAL.ends else decode([token])

    return [show(cell.token) for cell in replay.cells]


def test_a_text_is_shown_as_it_is_and_can_be_played_again(scripted: Start, visit: Visit) -> None:
    text = "One line,\nand another <b>one</b>,\n\tthe end."
    page = visit(scripted(says(text, confidence=0.95)).url).open(a__initial_length=240).run()
    assert page.text() == text
    expect(page.side("a").locator(".pill")).to_have_text("complete")
    expect(page.at(".chart .mark.contract").first).to_have_attribute("d", re.compile("^M"))
    page.at("#scrubber").press("Home")
    assert page.cells() == [None] * 240
    page.at("#scrubber").press("ArrowRight")
    assert page.at("#clock").inner_text() == f"1 / {page.forwards}"
    page.at("#play").click()
    page.wait_until_idle()
    assert page.text() == text


def test_side_by_side_compares_the_cost(server: Process, visit: Visit, llm: LLM) -> None:
    ways = (
        {"initial_length": 8, "max_new_tokens": 24},
        {"policy": "fixed", "initial_length": 64, "max_new_tokens": 64},
    )
    ours, fixed = (
        llm.generate(["hello"], DecodeParams(**way))[0].usage.positions_evaluated for way in ways
    )
    lengths = {"a__initial_length": 8, "a__max_tokens": 24, "b__initial_length": 64}
    page = visit(server.url).open(compare=1, **lengths).run()
    assert [page.figure("positions", side) for side in "ab"] == [f"{ours:,}", f"{fixed:,}"]
    expect(page.at("#verdict")).to_contain_text(
        f"ρ-EOS · 8 cost {fixed / ours:.1f}× less than Fixed length · 64"
    )
    page.at("#compare").uncheck()
    expect(page.at("#verdict")).to_be_hidden()


def test_a_run_is_watched_while_it_goes_on_and_can_be_stopped(
    scripted: Start, visit: Visit
) -> None:
    server = scripted(says("x" * 200), seconds=0.1)
    page = visit(server.url).open(a__initial_length=256)
    page.run_button.click()
    expect(page.at(".canvas .token").nth(3)).to_be_visible()
    expect(page.at(".canvas .fresh")).not_to_have_count(0)
    seen, _ = page.line_points()
    expect(page.at(".canvas .token").nth(12)).to_be_visible()
    drawn, lengths_drawn = page.line_points()
    assert lengths_drawn == drawn > seen > 0
    expect(page.run_button).to_have_text("Stop")
    page.run_button.click()
    page.wait_until_idle()
    server.wait_for_metric("rho_eos_requests_running", 0)
    cells = page.cells()
    assert None in cells and "x" in cells
    expect(page.at(".panel:visible .story")).to_contain_text(
        f"{cells.count(None)} of {len(cells)} positions still open."
    )
    expect(page.at(".error:visible")).to_have_count(0)
    page.run_button.click()  # and it can run again
    expect(page.run_button).to_have_text("Stop")
    page.page.keyboard.press("Escape")
    page.wait_until_idle()


def test_a_long_canvas_redraws_only_what_changed(scripted: Start, visit: Visit) -> None:
    page = visit(scripted(says("w" * 40, confidence=0.5)).url)
    page.open(a__policy="fixed", a__initial_length=2048, a__block_length=8).run()
    page.seek(5)
    assert len(page.cells()) == 2048
    touched = page.page.evaluate(
        """async () => {
            let touched = 0;
            const observer = new MutationObserver(records => (touched += records.length));
            const everything = { subtree: true, childList: true, attributes: true };
            observer.observe(document.querySelector(".canvas"), everything);
            document.querySelector("#forward").click();
            await new Promise(requestAnimationFrame);
            observer.disconnect();
            return touched;
        }"""
    )
    assert 0 < touched < 20  # one position is filled, one is no longer the newest
