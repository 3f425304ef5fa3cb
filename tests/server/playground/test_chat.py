"""The chat tab: several turns, each answer with the canvas it was written on."""

from tests.scripted import Guesses, decode, says
from tests.server.playground import Start, Visit, expect


def counts_messages(prompt: list[int], canvas: list[int], step: int) -> Guesses:
    """Answers with how many messages it was sent, and the last one."""
    messages = decode(prompt).split("\n")
    return says(f"{len(messages)} {messages[-1]}", 0.95)(prompt, canvas, step)


def test_turns_build_on_each_other_and_each_answer_can_be_replayed(
    scripted: Start, visit: Visit
) -> None:
    page = visit(scripted(counts_messages).url).open("of the other tab", compare=1)
    page.at("#tab-chat").click()
    expect(page.at("#prompt")).to_have_value("")
    expect(page.side("b")).to_be_hidden()
    page.send("one").send("two").send("three")
    assert page.at(".question").all_inner_texts() == ["one", "two", "three"]
    assert page.at(".answer").all_inner_texts() == ["1 one", "3 two", "5 three"]
    assert page.text() == "5 three"
    first = page.at(".turn").first
    first.get_by_role("button", name="Replay").click()
    page.wait_until_idle()
    assert page.text() == "1 one"
    expect(page.at(".turn[aria-current] .question")).to_have_text("one")
    page.seek(0)
    assert set(page.cells()) == {None}
    page.at("#prompt").fill("a draft")
    page.at("#tab-chat").press("ArrowLeft")
    expect(page.at("#prompt")).to_have_value("of the other tab")
    expect(page.side("b")).to_be_visible()
    page.at("#tab-prompt").press("ArrowRight")
    expect(page.at("#prompt")).to_have_value("a draft")
    assert page.text() == "1 one"

    page.at("#new-chat").click()
    expect(page.at(".turn")).to_have_count(0)
    page.send("afresh")
    assert page.at(".answer").all_inner_texts() == ["1 afresh"]


def test_a_turn_without_an_answer_is_taken_back(scripted: Start, visit: Visit) -> None:
    server = scripted(counts_messages)
    page = visit(server.url).open(tab="chat", a__initial_length=16)
    page.send("kept")
    server.runner.may_run.clear()
    page.at("#prompt").fill("stopped")
    page.at("#prompt").press("Enter")
    server.wait_for_requests(1)
    expect(page.at("#tab-prompt")).to_be_disabled()
    page.page.keyboard.press("Escape")
    page.wait_until_idle()
    expect(page.at("#prompt")).to_have_value("stopped")
    expect(page.at(".turn")).to_have_count(1)

    server.runner.fault = lambda prompts: RuntimeError("out of memory")
    server.runner.may_run.set()
    page.at("#prompt").press("Enter")
    expect(page.at("#problem")).to_be_visible()
    expect(page.at(".turn")).to_have_count(1)
    expect(page.at("#prompt")).to_have_value("stopped")
    server.runner.fault = lambda prompts: None
    page.send("after all")
    assert page.at(".answer").all_inner_texts() == ["1 kept", "3 after all"]
    page.at("#prompt").fill("two")
    page.at("#prompt").press("Shift+Enter")  # a line break, no message
    expect(page.at("#prompt")).to_have_value("two\n")
    page.expect_failed_requests()


def test_a_conversation_fits_a_phone_and_stays_text(scripted: Start, visit: Visit) -> None:
    phone = {"viewport": {"width": 320, "height": 640}, "is_mobile": True, "has_touch": True}
    page = visit(scripted(says("<b>bold</b>" + "w" * 80, 0.95)).url, **phone).open(tab="chat")
    page.send("<i>q</i>" + "u" * 90)
    assert page.at(".question").inner_text() == "<i>q</i>" + "u" * 90
    assert page.at(".answer").inner_text() == "<b>bold</b>" + "w" * 80
    assert not page.scrolls_sideways
    assert page.at("#turns b, #turns i").count() == 0
