"""Keys, dead servers and refusals: each a sentence, and nothing typed is lost."""

from collections.abc import Callable

from tests.scripted import says
from tests.server.line import Line
from tests.server.playground import Playground, Visit, expect
from tests.server.scripted_server import Scripted

WRONG = "This API key is not accepted."


def give_key(page: "Playground", key: str) -> None:
    page.at("#key").fill(key)
    page.at("#key").press("Enter")


def test_a_key_is_asked_for_and_what_was_typed_survives(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    page = visit(scripted(says("secret answer"), api_key=("sesame",)).url)
    page.page.goto(f"{page.url}/#prompt=from+the+link")
    expect(page.at("#problem")).to_have_text("This server asks for an API key.")
    expect(page.at("#prompt")).to_have_value("from the link")
    expect(page.at("#retry")).to_be_hidden()
    page.at("#prompt").fill("typed before the key")
    give_key(page, "sésame 芝麻")  # no header can carry it
    expect(page.at("#problem")).to_contain_text(WRONG)
    give_key(page, "wrong")
    expect(page.at("#problem")).to_contain_text(WRONG)
    expect(page.at("#key")).to_be_focused()
    give_key(page, "sesame")
    expect(page.run_button).to_be_enabled()
    expect(page.at("#key-box")).to_be_hidden()
    expect(page.at("#problem")).to_be_hidden()
    expect(page.at("#prompt")).to_have_value("typed before the key")
    page.run()
    assert page.text() == "secret answer"
    assert "sesame" not in page.page.url
    page.expect_failed_requests()


def test_a_key_is_kept_for_the_session_and_only_if_it_was_right(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    page = visit(scripted(says("again"), api_key=("sesame",)).url)
    kept = "Object.values({...sessionStorage, ...localStorage}).join()"
    page.page.goto(page.url)
    give_key(page, "wrong")
    expect(page.at("#problem")).to_contain_text(WRONG)
    assert page.page.evaluate(kept) == ""
    give_key(page, "sesame")
    expect(page.run_button).to_be_enabled()
    page.page.reload()
    expect(page.run_button).to_be_enabled()
    expect(page.at("#key-box")).to_be_hidden()
    page.run()
    assert page.text() == "again"
    assert page.page.evaluate(kept) == "sesame"
    other = visit(page.url)  # another session
    other.page.goto(page.url)
    expect(other.at("#key-box")).to_be_visible()
    for each in (page, other):
        each.expect_failed_requests()


def test_a_key_that_stops_working_is_asked_for_again_and_the_run_goes_on(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    page = visit(scripted(says("back")).url).open("keep me", compare=1)
    refusing = "**/v1/chat/completions"
    page.page.route(refusing, lambda route: route.fulfill(status=401, body="{}"))
    page.run_button.click()
    expect(page.at("#problem")).to_have_text("This server asks for an API key.")
    expect(page.at(".panel .error:visible")).to_have_count(0)
    page.page.unroute(refusing)
    give_key(page, "new")
    expect(page.at("#verdict")).to_be_visible()
    assert page.text("a") == page.text("b") == "back"
    expect(page.at("#key-box")).to_be_hidden()
    expect(page.at("#prompt")).to_have_value("keep me")
    page.expect_failed_requests()


def test_a_server_that_dies_is_told_of_in_words(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    line = Line(scripted(says("z" * 60), seconds=0.05).url)
    page = visit(line.url).open(a__initial_length=64)
    page.run_button.click()
    expect(page.at(".canvas .token").nth(2)).to_be_visible()
    line.cut()
    error = page.side("a").get_by_role("alert")
    expect(error).to_contain_text("The connection to the server was lost")
    page.wait_until_idle()
    assert "z" in page.text()
    page.run_button.click()
    expect(error).to_contain_text("The server cannot be reached.")
    page.wait_until_idle()
    page.expect_failed_requests()


def test_a_server_that_was_away_can_be_tried_again(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    page = visit(scripted(says("here")).url)
    page.page.route("**/v1/**", lambda route: route.abort())
    page.page.goto(page.url)
    expect(page.at("#problem")).to_contain_text("The server cannot be reached.")
    page.at("#prompt").fill("patient")
    page.page.unroute("**/v1/**")
    page.at("#retry").click()
    expect(page.at("#problem")).to_be_hidden()
    expect(page.at("#prompt")).to_have_value("patient")
    page.run()
    assert page.text() == "here"
    page.expect_failed_requests()


def test_a_run_that_is_stopped_before_it_began_says_so(
    scripted: Callable[..., Scripted], visit: Visit
) -> None:
    server = scripted(says("never"))
    server.runner.may_run.clear()
    page = visit(server.url).open()
    page.run_button.click()
    server.wait_for_requests(1)
    page.run_button.click()
    page.wait_until_idle()
    expect(page.side("a").locator(".story")).to_have_text("Stopped before the first forward.")
    expect(page.at(".error:visible")).to_have_count(0)
