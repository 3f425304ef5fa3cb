"""The playground in a real browser: against a real server process, and a scripted model."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rho_eos import LLM, DecodeParams
from rho_eos.trace import Replay
from tests.scripted import EOS, SPECIAL, Script, arbitrary, decode, run_one, says
from tests.server.conftest import MODEL, Process
from tests.server.scripted_server import ControlledRunner, Scripted, serving
from tests.support import require

try:
    from playwright.sync_api import Browser, expect, sync_playwright

    from tests.server.playground_page import Playground
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
SHORT: dict[str, Any] = {"a__initial_length": 16, "a__max_tokens": 48}

Visit = Callable[..., "Playground"]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    require(sync_playwright is not None, "the package playwright is not installed")
    require(shutil.which(CHROMIUM) is not None, f"there is no Chromium at {CHROMIUM}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: "Browser") -> Iterator[Visit]:
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
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(script: Script, seconds: float = 0.0, **config: Any) -> Scripted:
            return stack.enter_context(serving(ControlledRunner(script, seconds), **config))

        yield start


def test_the_page_loads_and_offers_a_prompt(server: Process, visit: Visit) -> None:
    page = visit(server.url).open(prompt=None)
    expect(page.at("#model")).to_have_text(MODEL)
    assert page.at("#prompt").input_value()  # an example, ready to run
    before = page.at("#prompt").input_value()
    page.at("#examples button").first.click(click_count=2)
    assert page.at("#prompt").input_value() != before


def test_a_run_shows_what_the_library_computes(server: Process, visit: Visit, llm: LLM) -> None:
    want = llm.generate(["hello"], DecodeParams(initial_length=16, max_new_tokens=48))[0].usage
    page = visit(server.url).open("hello", **SHORT).run()
    assert page.figure("nfe") == str(want.nfe)
    assert page.figure("positions") == f"{want.positions_evaluated:,}"
    assert page.figure("tokensPerForward") == f"{want.tokens_per_forward:.2f}"
    assert page.figure("eRatio") == f"{round(100 * want.e_ratio)}%"
    assert len(page.cells()) == want.n_token
    assert page.line_points(0) == page.line_points(1) == want.nfe


def test_tokens_appear_and_charts_move_while_it_runs(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    page = visit(scripted(says("x" * 60), seconds=0.15).url).open(a__initial_length=64)
    page.run_button.click()
    expect(page.at(".canvas .token").nth(3)).to_be_visible()
    expect(page.at(".canvas .fresh")).not_to_have_count(0)
    assert None in page.cells()  # and it is not finished
    seen = page.line_points(0)
    expect(page.at(".canvas .token").nth(12)).to_be_visible()
    assert page.line_points(0) > seen > 0
    assert page.line_points(1) == page.line_points(0)
    expect(page.at("#run")).to_have_text("Stop")


@pytest.mark.parametrize(
    ("script", "params", "actions"),
    [
        (
            arbitrary(3, [0.1, 0.9, 0.5], sure=0.1),
            {"horizon": 30, "expansion": "constant", "block_length": 8},
            {"hold", "expand", "contract"},
        ),
        (
            arbitrary(5, [0.1, 0.1, 0.5, 0.2, 0.2], sure=0.3),
            {"policy": "daedal", "signal": "density", "rho_low": 0.3, "rho_high": 0.8},
            {"hold", "expand", "close", "insert"},
        ),
    ],
    ids=["rho-eos", "daedal"],
)
def test_every_scrubber_position_is_the_canvas_of_that_step(
    scripted: Callable[..., Scripted],
    visit: Visit,
    script: Script,
    params: dict[str, Any],
    actions: set[str],
) -> None:
    settings = {"initial_length": 32, "early_stop": False, **params}
    trace = run_one(script, DecodeParams(**settings, max_new_tokens=80, trace=True)).trace
    assert {record.action for record in trace} == actions
    replay = Replay(32, EOS)
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


def replay_frame(replay: Replay) -> list[str | None]:
    def show(token: int | None) -> str | None:
        if token is None:
            return None
        return "END" if token in SPECIAL.ends else decode([token])

    return [show(cell.token) for cell in replay.cells]


def test_the_canvas_grows_and_shrinks_and_replays_to_the_final_text(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    text = "One line,\nand another <b>one</b>,\n\tthe end."
    server = scripted(says(text, confidence=0.95))
    page = visit(server.url).open(a__initial_length=16, a__max_tokens=256).run()
    assert page.text() == text
    assert len(page.cells()) > 16
    page.at("#scrubber").press("Home")
    assert page.cells() == [None] * 16
    page.at("#scrubber").press("ArrowRight")
    assert page.at("#clock").inner_text() == f"1 / {page.forwards}"
    page.at("#play").click()
    page.wait_until_idle()
    assert page.text() == text
    page.open(a__initial_length=240, a__max_tokens=256).run()
    assert page.text() == text
    assert len(page.cells()) < 240
    expect(page.at(".chart .mark.contract").first).to_have_attribute("d", re.compile("^M"))


def test_side_by_side_compares_the_cost(server: Process, visit: Visit, llm: LLM) -> None:
    ours = llm.generate(["hello"], DecodeParams(initial_length=8, max_new_tokens=24))[0]
    fixed = llm.generate(
        ["hello"], DecodeParams(policy="fixed", initial_length=64, max_new_tokens=64)
    )[0]
    page = visit(server.url).open(
        compare=1, a__initial_length=8, a__max_tokens=24, b__initial_length=64
    )
    page.run()
    assert page.figure("positions", "a") == f"{ours.usage.positions_evaluated:,}"
    assert page.figure("positions", "b") == f"{fixed.usage.positions_evaluated:,}"
    factor = fixed.usage.positions_evaluated / ours.usage.positions_evaluated
    expect(page.at("#verdict")).to_contain_text(f"ρ-EOS cost {factor:.1f}× less than Fixed 64")
    expect(page.at("#verdict")).to_contain_text("The two texts differ.")
    page.at("#compare").uncheck()
    expect(page.side("b")).to_be_hidden()
    expect(page.at("#verdict")).to_be_hidden()


def test_by_default_side_by_side_is_fixed_256(server: Process, visit: Visit) -> None:
    page = visit(server.url).open(compare=1)
    expect(page.side("a").locator("h2")).to_have_text("ρ-EOS")
    expect(page.side("b").locator("h2")).to_have_text("Fixed 256")


def test_stop_ends_the_request_and_keeps_what_was_shown(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    server = scripted(says("x" * 200), seconds=0.1)
    page = visit(server.url).open(a__initial_length=256)
    page.run_button.click()
    expect(page.at(".canvas .token").nth(2)).to_be_visible()
    page.run_button.click()
    page.wait_until_idle()
    server.wait_for_metric("rho_eos_requests_running", 0)
    assert None in page.cells()
    assert "x" in page.text()
    expect(page.at(".error:visible")).to_have_count(0)
    page.run_button.click()  # and it can run again
    expect(page.run_button).to_have_text("Stop")
    page.page.keyboard.press("Escape")
    page.wait_until_idle()


def test_a_chosen_pace_holds_back_what_has_arrived(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    page = visit(scripted(says("y" * 30)).url).open(speed=3, a__initial_length=32)
    page.run_button.click()
    expect(page.at("#scrubber")).not_to_have_attribute("max", re.compile("^[0-9]$"))
    shown, arrived = map(int, page.at("#clock").inner_text().split(" / "))
    assert shown < arrived
    page.at("#speed").select_option("30")
    page.wait_until_idle()
    assert page.text() == "y" * 30


def test_settings_travel_in_the_address(server: Process, visit: Visit) -> None:
    page = visit(server.url).open(prompt=None)
    a, b = page.side("a"), page.side("b")
    page.at("#prompt").fill("a & b = c # 100% ρ\nsecond line")
    page.at("#compare").check()
    page.at("#speed").select_option("10")
    a.get_by_text("Settings").click()
    a.get_by_role("button", name="sym", exact=True).click()
    a.get_by_role("slider").nth(1).press("PageDown")
    a.get_by_label("Initial length").fill("24")
    a.get_by_text("More parameters").click()
    a.get_by_label("Block length").fill("")
    a.get_by_label("Change of length").select_option("linear")
    a.get_by_label("Stop once the text is complete").uncheck()
    b.get_by_role("radio", name="DAEDAL").check()
    address = page.page.url

    other = visit(server.url)
    other.page.goto(address)
    expect(other.run_button).to_be_enabled()
    a, b = other.side("a"), other.side("b")
    expect(other.at("#prompt")).to_have_value("a & b = c # 100% ρ\nsecond line")
    expect(other.at("#compare")).to_be_checked()
    expect(other.at("#speed")).to_have_value("10")
    expect(a.locator(".region-value")).to_have_text("0.20 – 0.70")
    expect(a.locator("[name=initial_length]")).to_have_value("24")
    expect(a.locator("[name=block_length]")).to_have_value("")
    expect(a.locator("[name=expansion]")).to_have_value("linear")
    expect(a.locator("[name=early_stop]")).not_to_be_checked()
    expect(b.locator("h2")).to_have_text("DAEDAL")
    assert other.page.url == address


def test_a_link_with_nonsense_falls_back_to_the_defaults(server: Process, visit: Visit) -> None:
    nonsense = {
        "a__policy": "guess",
        "a__rho_low": "low",
        "a__initial_length": "x",
        "speed": "warp",
    }
    page = visit(server.url).open(**nonsense, unknown="1")
    expect(page.side("a").locator("h2")).to_have_text("ρ-EOS")
    expect(page.side("a").locator(".region-value")).to_have_text("0.40 – 0.80")
    expect(page.side("a").get_by_label("Initial length")).to_have_value("64")
    expect(page.at("#speed")).to_have_value("live")


def test_the_keyboard_is_enough(scripted: Callable[..., Scripted], visit: Visit) -> None:
    page = visit(scripted(says("done")).url).open()
    low, high = page.side("a").get_by_role("slider").all()
    low.press("ArrowRight")
    expect(low).to_have_attribute("aria-valuenow", "0.41")
    low.press("PageUp")
    low.press("End")  # as far as the other handle
    expect(low).to_have_attribute("aria-valuenow", "0.8")
    high.press("Home")
    expect(high).to_have_attribute("aria-valuenow", "0.8")
    low.press("Home")
    expect(low).to_have_attribute("aria-valuenow", "0")
    expect(page.side("a").locator(".region-value")).to_have_text("0.00 – 0.80")
    page.at("#prompt").focus()
    reached = set()
    for _ in range(12):
        page.page.keyboard.press("Tab")
        reached.add(
            page.page.evaluate("document.activeElement.id || document.activeElement.role || ''")
        )
    assert {"run", "compare", "slider"} <= reached
    page.at("#prompt").press("Control+Enter")
    expect(page.at("#scrubber")).to_be_enabled()
    page.wait_until_idle()
    assert page.text() == "done"
    assert page.page.evaluate("document.activeElement.id") == "prompt"


def test_a_handle_can_be_dragged(scripted: Callable[..., Scripted], visit: Visit) -> None:
    page = visit(scripted(says("done")).url).open()
    box = page.side("a").locator(".region-track").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    mouse = page.page.mouse
    mouse.move(box["x"] + box["width"] * 0.82, middle)
    mouse.down()
    mouse.move(box["x"] + box["width"] * 0.6, middle, steps=3)
    mouse.up()
    mouse.move(box["x"], middle)  # released: this moves nothing
    expect(page.side("a").locator(".region-value")).to_have_text("0.40 – 0.60")


def test_light_and_dark(server: Process, visit: Visit) -> None:
    def brightness(page: Playground) -> float:
        colour = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    dark = visit(server.url, color_scheme="dark").open()
    assert brightness(dark) < 60
    light = visit(server.url, color_scheme="light").open()
    assert brightness(light) > 200
    light.at("#theme").click()
    assert brightness(light) < 60
    light.page.reload()
    assert brightness(light) < 60  # the reader's choice is kept


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_needs_no_sideways_scrolling(
    scripted: Callable[..., Scripted], visit: Visit, width: int
) -> None:
    server = scripted(says("a-word-without-a-space-" * 12, confidence=0.95))
    phone = {"viewport": {"width": width, "height": 640}, "is_mobile": True, "has_touch": True}
    page = visit(server.url, **phone).open("w" * 300, compare=1, a__max_tokens=512)
    page.side("a").get_by_text("Settings").click()
    page.side("a").get_by_text("More parameters").click()
    assert not page.scrolls_sideways
    page.run()
    expect(page.at("#verdict")).to_be_visible()
    assert not page.scrolls_sideways
    assert page.text().startswith("a-word")


ATTACK = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_markup_in_prompt_and_answer_stays_text(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    server = scripted(says(ATTACK, confidence=0.95))
    page = visit(server.url).open(ATTACK, compare=1).run()
    assert page.text("a") == page.text("b") == ATTACK
    assert page.at("#prompt").input_value() == ATTACK
    assert_no_markup_came_alive(page)


def test_a_token_or_an_error_that_is_markup_stays_text(server: Process, visit: Visit) -> None:
    page = visit(server.url).open()
    page.page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(content_type="text/event-stream", body=answer_of(ATTACK)),
    )
    page.run()
    assert page.text() == ATTACK
    page.at(".canvas .token").hover()
    expect(page.at(".tooltip")).to_contain_text("onerror")
    expect(page.side("a").get_by_role("alert")).to_have_text(ATTACK)
    assert_no_markup_came_alive(page)


def answer_of(text: str) -> str:
    """A generation of one token, and then a failure that is described by the same text."""
    start = {"object": "rho_eos.start", "length": 2, "region": [0.4, 0.8], "prompt_tokens": 1}
    step = {
        "object": "rho_eos.step",
        "step": 0,
        "length": 2,
        "masks": 2,
        "rho": 0.5,
        "signal": 0.5,
        "action": "hold",
        "change": 0,
        "at": None,
        "inserted": 0,
        "committed": [[0, text, 0.9, False], [1, text, 0.9, True]],
        "positions_evaluated": 3,
    }
    events = (start, step, {"error": {"message": text}})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def assert_no_markup_came_alive(page: "Playground") -> None:
    assert page.page.locator("img").count() == 0
    assert page.page.locator("script").count() == 1  # the page's own
    assert page.page.title() == "ρ-EOS playground"


def test_errors_are_shown_in_words(server: Process, visit: Visit) -> None:
    page = visit(server.url).open("x" * 3000)
    page.run_button.click()
    error = page.side("a").get_by_role("alert")
    expect(error).to_contain_text("context")  # the server's sentence, not a status code
    page.wait_until_idle()
    page.at("#prompt").fill("   ")
    page.run_button.click()
    expect(page.at("#problem")).to_contain_text("The prompt is empty")
    page.at("#prompt").fill("hello")
    page.page.route("**/v1/chat/completions", lambda route: route.abort())
    page.run_button.click()
    expect(error).to_contain_text("The server cannot be reached")
    page.wait_until_idle()
    page.expect_failed_requests()


def test_a_field_out_of_range_is_named_before_anything_is_sent(
    server: Process, visit: Visit
) -> None:
    page = visit(server.url).open()
    page.side("a").get_by_label("Initial length").fill("0")
    page.run_button.click()
    assert page.page.evaluate("document.activeElement.name") == "initial_length"
    assert not any(url.endswith("/chat/completions") for url in page.requests)


def test_a_failure_midway_keeps_the_canvas(scripted: Callable[..., Scripted], visit: Visit) -> None:
    server = scripted(says("z" * 60), seconds=0.05)
    page = visit(server.url).open(a__initial_length=64)
    page.run_button.click()
    expect(page.at(".canvas .token").nth(2)).to_be_visible()
    server.runner.fault = lambda prompts: RuntimeError("out of memory")
    expect(page.side("a").get_by_role("alert")).not_to_be_empty()
    page.wait_until_idle()
    assert "z" in page.text()
    page.expect_failed_requests()


def test_a_key_is_asked_for_where_one_is_needed(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    page = visit(scripted(says("secret answer"), api_key=("sesame",)).url)
    page.page.goto(page.url)
    expect(page.at("#key")).to_be_visible()
    page.at("#key").fill("sesame")
    page.at("#key").press("Enter")
    expect(page.run_button).to_be_enabled()
    page.at("#prompt").fill("hello")
    page.run()
    assert page.text() == "secret answer"
    assert "sesame" not in page.page.url
    page.expect_failed_requests()


def test_a_long_canvas_redraws_only_what_changed(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
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


def test_motion_is_spared_those_who_do_not_want_it(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    server = scripted(says("v" * 60, confidence=0.95))
    page = visit(server.url, reduced_motion="reduce").open(a__initial_length=16).run()
    assert page.at(".canvas [data-born]").count() == 0
    running = "document.getAnimations().filter(each => each.playState === 'running').length"
    assert page.page.evaluate(running) == 0
