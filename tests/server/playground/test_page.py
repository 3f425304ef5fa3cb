"""The page around a generation: prompt, settings, colours, sizes, keys, and what goes wrong."""

import json
import re
from collections.abc import Callable

import pytest

from rho_eos.embedded.scope import EXAMPLE, NOTE
from tests.scripted import says
from tests.server.conftest import MODEL, Process
from tests.server.playground import Playground, Visit, expect
from tests.server.scripted_server import Scripted


def test_the_page_loads_and_offers_a_prompt(server: Process, visit: Visit) -> None:
    page = visit(server.url).open(prompt=None)
    expect(page.at("#model")).to_have_text(MODEL)
    assert page.at("#prompt").input_value()  # an example, ready to run
    before = page.at("#prompt").input_value()
    page.at("#examples button").first.click(click_count=2)
    assert page.at("#prompt").input_value() != before


def test_a_prompt_unlike_what_tiny_knows_gets_a_remark(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    server = scripted(says("done"))
    server.service.llm.config.model = "tiny"  # what the server goes by
    page = visit(server.url).open()
    for prompt, remark in (("Count to three.", True), (EXAMPLE, False)):
        page.at("#prompt").fill(prompt)
        page.at("#prompt").press("Control+Enter")
        expect(page.side("a").locator(".pill")).to_have_text("canvas full")
        note = page.side("a").locator(".note")
        expect(note).to_have_text(NOTE) if remark else expect(note).to_be_hidden()


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
    a.locator("[name=stop]").fill("one\ntwo # 3")
    a.get_by_label("Expansion", exact=True).select_option("linear")
    a.get_by_label("Early stop").uncheck()
    b.get_by_text("Settings").click()
    b.get_by_label("Length policy").select_option("daedal")
    b.get_by_label("Commit rule").select_option("wino")
    b.get_by_label("Cache", exact=True).select_option("window")
    b.locator("[name=verify]").fill("0.7")
    address = page.page.evaluate("location.href")

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
    expect(a.locator("[name=stop]")).to_have_value("one\ntwo # 3")
    expect(a.locator("[name=threshold]")).to_have_value("0.9")
    expect(b.locator("h2")).to_have_text("DAEDAL · WINO · Window cache")
    expect(b.locator("[name=verify]")).to_have_value("0.7")
    assert other.page.url == address


def test_a_link_with_nonsense_falls_back_to_the_defaults(server: Process, visit: Visit) -> None:
    nonsense = {
        "a__policy": "guess",
        "a__commit": "guess",
        "a__cache": "constructor",
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
    for _ in range(20):
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
    track = page.side("a").locator(".region-track")
    track.evaluate("node => node.scrollIntoView({ block: 'center' })")  # not behind the footer
    box = track.bounding_box()
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
    start = {
        "object": "rho_eos.start",
        "policy": text,
        "signal": text,
        "length": 2,
        "region": [0.4, 0.8],
        "prompt_tokens": 1,
    }
    step = {
        "object": "rho_eos.step",
        "step": 0,
        "length": 2,
        "masks": 2,
        "rho": 0.5,
        "signal": 0.5,
        "action": "hold",
        "change": 0,
        "moved": None,
        "written": [],
        "why": text,
        "committed": [[0, text, 0.9, False], [1, text, 0.9, True]],
        "positions_evaluated": 3,
        "computed": 3,
        "exact": 3,
        "refresh": True,
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
