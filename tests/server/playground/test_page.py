"""The page around a generation: prompt, settings, colours, sizes, keys, and what goes wrong."""

import json
import re
from typing import Any

import pytest

from rho_eos.embedded.scope import EXAMPLE, NOTE
from tests.scripted import says
from tests.server.conftest import MODEL, Process
from tests.server.playground import Playground, Start, Visit, expect


def test_a_prompt_unlike_what_tiny_knows_gets_a_remark(scripted: Start, visit: Visit) -> None:
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
    texts = {"initial_length": "24", "block_length": "", "stop": "one\ntwo # 3"}
    prompt = "a & b = c # 100% ρ\nsecond line"
    a, b = page.side("a"), page.side("b")
    page.at("#prompt").fill(prompt)
    page.at("#compare").check()
    page.at("#speed").select_option("10")
    a.get_by_text("Settings").click()
    a.get_by_role("button", name="sym", exact=True).click()
    a.get_by_text("More parameters").click()
    for name, text in texts.items():
        a.locator(f"[name={name}]").fill(text)
    a.get_by_label("Expansion", exact=True).select_option("linear")
    a.get_by_label("Early stop").uncheck()
    b.get_by_text("Settings").click()
    b.get_by_label("Length policy").select_option("daedal")
    b.get_by_label("Commit rule").select_option("wino")
    address = page.page.evaluate("location.href")

    other = visit(server.url)
    other.page.goto(address)
    expect(other.run_button).to_be_enabled()
    a, b = other.side("a"), other.side("b")
    expect(other.at("#compare")).to_be_checked()
    expect(a.locator(".region-value")).to_have_text("0.20 – 0.80")
    expect(a.locator("[name=early_stop]")).not_to_be_checked()
    expect(b.locator("h2")).to_have_text("DAEDAL · WINO")
    expect(other.at("#prompt")).to_have_value(prompt)
    expect(other.at("#speed")).to_have_value("10")
    for name, text in {**texts, "expansion": "linear"}.items():
        expect(a.locator(f"[name={name}]")).to_have_value(text)
    assert other.page.url == address

    nonsense = {"a__policy": "guess", "a__cache": "constructor", "a__rho_low": "low"}
    usual = visit(server.url).open(**nonsense, a__initial_length="x", speed="warp", unknown="1")
    expect(usual.side("a").locator("h2")).to_have_text("ρ-EOS")
    expect(usual.side("a").get_by_label("Initial length")).to_have_value("64")
    for left_out in (
        "a.policy guess",
        "a.cache constructor",
        "a.rho_low low",
        "a.initial_length x",
    ):
        expect(usual.at("#problem")).to_contain_text(left_out)


def test_the_keyboard_is_enough(scripted: Start, visit: Visit) -> None:
    page = visit(scripted(says("done")).url).open()
    low, high = page.side("a").get_by_role("slider").all()
    low.press("ArrowRight")
    expect(low).to_have_attribute("aria-valuenow", "0.41")
    low.press("End")  # as far as the other handle
    high.press("Home")
    expect(page.side("a").locator(".region-value")).to_have_text("0.80 – 0.80")
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


def test_a_handle_can_be_dragged(scripted: Start, visit: Visit) -> None:
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


def test_the_page_offers_a_prompt_and_becomes_dark(server: Process, visit: Visit) -> None:
    def brightness(page: Playground) -> float:
        colour = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3

    light = visit(server.url, color_scheme="light").open(prompt=None)
    expect(light.at("#model")).to_have_text(MODEL)
    example = light.at("#prompt").input_value()  # ready to run
    light.at("#examples button").first.click(click_count=2)
    assert example and light.at("#prompt").input_value() != example
    assert brightness(light) > 200
    light.at("#theme").click()
    assert brightness(light) < 60
    light.page.reload()
    assert brightness(light) < 60  # the reader's choice is kept


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_needs_no_sideways_scrolling(scripted: Start, visit: Visit, width: int) -> None:
    name = "GSAI-ML/LLaDA-8B-Instruct-with-a-rather-long-name-of-its-own-2025-12-31-step-100000"
    server = scripted(says("a-word-without-a-space-" * 12, 0.95), served_model_name=name)
    phone = {"viewport": {"width": width, "height": 640}, "is_mobile": True, "has_touch": True}
    page = visit(server.url, **phone).open("w" * 300, compare=1, a__max_tokens=512)
    assert page.at("#model").evaluate("name => name.scrollWidth <= name.clientWidth")
    page.side("a").get_by_text("Settings").click()
    page.side("a").get_by_text("More parameters").click()
    assert not page.scrolls_sideways
    page.run()
    expect(page.at("#verdict")).to_be_visible()
    assert not page.scrolls_sideways
    assert page.text().startswith("a-word")


ATTACK = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_markup_stays_text_wherever_it_comes_from(scripted: Start, visit: Visit) -> None:
    """The server's own answer, with the markup as its token, as every sentence and as an error."""
    page = visit(scripted(says("@")).url).open(ATTACK, a__initial_length=2)

    def answer(route: Any) -> None:
        told, markup = route.fetch().text(), json.dumps(ATTACK)
        told = told.replace('"@"', markup)
        told = re.sub('"(why|signal)":"[^"]*"', lambda field: f'"{field[1]}":{markup}', told)
        failure = json.dumps({"error": {"message": ATTACK}})
        body = told[: told.index('data: {"object":"rho_eos.done"')] + f"data: {failure}\n\n"
        route.fulfill(content_type="text/event-stream", body=body)

    page.page.route("**/v1/chat/completions", answer)
    page.run()
    assert page.text() == ATTACK
    page.at(".canvas .token").first.hover()
    expect(page.at(".tooltip")).to_contain_text("onerror")
    expect(page.side("a").get_by_role("alert")).to_have_text(ATTACK)
    assert page.at("#prompt").input_value() == ATTACK
    assert page.page.locator("img").count() == 0
    assert page.page.locator("script").count() == 1  # the page's own
    assert page.page.title() == "ρ-EOS playground"


def test_errors_are_shown_in_words(server: Process, visit: Visit) -> None:
    page = visit(server.url).open("   ")
    page.run_button.click()
    expect(page.at("#problem")).to_contain_text("The prompt is empty")
    page.at("#prompt").fill("x" * 3000)
    page.side("a").get_by_label("Initial length").fill("0")
    page.run_button.click()
    assert page.page.evaluate("document.activeElement.name") == "initial_length"
    assert not any(url.endswith("/chat/completions") for url in page.requests)
    page.side("a").get_by_label("Initial length").fill("16")
    page.run_button.click()
    expect(page.side("a").get_by_role("alert")).to_contain_text("context")
    page.wait_until_idle()
    page.expect_failed_requests()
