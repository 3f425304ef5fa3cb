"""Keys, dead servers and refusals: each a sentence, and nothing typed is lost."""

from pathlib import Path

from tests.scripted import says
from tests.server.conftest import start_server
from tests.server.playground import Playground, Start, Visit, expect

WRONG = "This API key is not accepted."


def give_key(page: "Playground", key: str) -> None:
    page.at("#key").fill(key)
    page.at("#key").press("Enter")


def test_a_key_is_asked_for_kept_for_the_session_and_costs_nothing_that_was_typed(
    scripted: Start, visit: Visit
) -> None:
    page = visit(scripted(says("secret answer"), api_key=("sesame",)).url)
    kept = "Object.values({...sessionStorage, ...localStorage}).join()"
    page.page.goto(f"{page.url}/#prompt=from+the+link")
    expect(page.at("#problem")).to_have_text("This server asks for an API key.")
    expect(page.at("#prompt")).to_have_value("from the link")
    expect(page.at("#retry")).to_be_hidden()
    page.at("#prompt").fill("typed before the key")
    for wrong in ("sésame 芝麻", "wrong"):  # no header can carry the first
        give_key(page, wrong)
        expect(page.at("#problem")).to_contain_text(WRONG)
    expect(page.at("#key")).to_be_focused()
    assert page.page.evaluate(kept) == ""
    give_key(page, "sesame")
    expect(page.run_button).to_be_enabled()
    expect(page.at("#problem")).to_be_hidden()
    expect(page.at("#prompt")).to_have_value("typed before the key")
    page.run()
    assert page.text() == "secret answer"
    assert "sesame" not in page.page.url and page.page.evaluate(kept) == "sesame"
    page.page.reload()
    expect(page.run_button).to_be_enabled()
    expect(page.at("#key-box")).to_be_hidden()
    page.expect_failed_requests()


def test_a_server_that_is_away_or_dies_is_told_of_in_words(
    byte_checkpoint: Path, tmp_path: Path, visit: Visit
) -> None:
    server = start_server(byte_checkpoint, tmp_path / "log")
    page = visit(server.url)
    page.page.route("**/v1/**", lambda route: route.abort())
    slow = "a.initial_length=400&a.max_tokens=400&a.threshold=1&a.block_length=1"
    page.page.goto(f"{page.url}/#a.policy=fixed&a.early_stop=false&{slow}")
    expect(page.at("#problem")).to_contain_text("The server cannot be reached.")
    page.at("#prompt").fill("patient")
    page.page.unroute("**/v1/**")
    page.at("#retry").click()
    expect(page.at("#problem")).to_be_hidden()
    expect(page.at("#prompt")).to_have_value("patient")
    page.run_button.click()
    expect(page.at(".canvas .token").nth(2)).to_be_visible()
    server.popen.kill()
    error = page.side("a").get_by_role("alert")
    expect(error).to_contain_text("The connection to the server was lost")
    page.wait_until_idle()
    assert any(page.cells()) and None in page.cells()
    page.run_button.click()
    expect(error).to_contain_text("The server cannot be reached.")
    page.wait_until_idle()
    page.expect_failed_requests()
