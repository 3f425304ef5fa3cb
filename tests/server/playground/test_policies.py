"""The form is the server's: every policy it has, each with its own parameters."""

from collections.abc import Callable

import httpx
import pytest

from tests.scripted import says
from tests.server.conftest import Process
from tests.server.playground import Visit, expect
from tests.server.scripted_server import Scripted


def test_every_policy_of_the_schema_has_its_form(server: Process, visit: Visit) -> None:
    described = httpx.get(f"{server.url}/v1/rho_eos/schema", trust_env=False).json()["policies"]
    page = visit(server.url).open()
    form = page.side("a").locator("form")
    form.get_by_text("More parameters").click()
    assert len(described) >= 4
    for policy, about in described.items():
        form.get_by_role("radio", name=about["title"], exact=True).check()
        expect(form.get_by_text(about["summary"])).to_be_visible()
        expect(page.side("a").locator("h2")).to_have_text(about["title"])
        wanted = {
            {"max_new_tokens": "max_tokens"}.get(name, name) for name in about["parameters"]
        } - {"trace", "logprobs"}
        shown = {field.get_attribute("name") for field in form.locator(".field [name]").all()}
        sliders = {"rho_low", "rho_high"} if form.get_by_role("slider").count() else set()
        chips = {"preset"} if form.locator("[data-preset]").count() else set()
        assert shown | sliders | chips == wanted, policy
        assert sliders == wanted & {"rho_low", "rho_high"}
        for name in wanted & set(about["parameters"]) - sliders - chips - {"initial_length"}:
            spec, field = about["parameters"][name], form.locator(f"[name={name}]")
            if spec["type"] == "flag":
                assert field.is_checked() == spec["default"], name
            elif spec["type"] in ("integer", "number"):
                text = "" if spec["default"] is None else f"{spec['default']:g}"
                assert field.input_value() == text, name
            elif spec["type"] == "choice":
                assert field.locator("option").all_inner_texts() == spec["choices"]


def test_a_choice_brings_its_own_defaults(server: Process, visit: Visit) -> None:
    page = visit(server.url).open(a__policy="daedal")
    region = page.side("a").locator(".region-value")
    expect(region).to_have_text("0.50 – 0.90")
    page.side("a").get_by_text("More parameters").click()
    page.side("a").get_by_label("Signal", exact=True).select_option("density")
    expect(region).to_have_text("0.40 – 0.80")
    page.run()  # and the server has it so, too: the band is drawn from what it says
    expect(page.side("a").locator(".charts figcaption").first).to_have_text("ρ per forward")
    page.side("a").get_by_role("radio", name="ρ-EOS", exact=True).check()
    page.side("a").get_by_role("button", name="sym", exact=True).click()
    expect(region).to_have_text("0.20 – 0.80")


def test_only_what_was_chosen_is_sent(scripted: Callable[..., Scripted], visit: Visit) -> None:
    page = visit(scripted(says("done")).url).open()
    sent: list[dict[str, object]] = []
    page.page.on(
        "request",
        lambda request: sent.append(request.post_data_json) if request.post_data else None,
    )
    page.run()
    form = page.side("a").locator("form")
    form.get_by_text("More parameters").click()
    form.get_by_label("Seed", exact=True).fill("7")
    form.get_by_label("Horizon", exact=True).fill("5")
    form.get_by_label("Block length", exact=True).fill("")
    form.get_by_role("radio", name="Fixed length").check()
    page.run()
    constant = ("model", "messages", "stream", "stream_mode")
    own = [{name: body[name] for name in body if name not in constant} for body in sent]
    assert own == [
        {"policy": "rho-eos"},
        # what the other policy has as well, it keeps
        {"policy": "fixed", "seed": 7, "block_length": None},
    ]


@pytest.mark.parametrize("width", [1400, 390])
def test_a_policy_of_a_plugin_is_chosen_changed_run_and_explained(
    plugin_server: Process, visit: Visit, width: int
) -> None:
    page = visit(plugin_server.url, viewport={"width": width, "height": 900}).open("hello")
    panel = page.side("a")
    panel.get_by_role("radio", name="Doubter").check()
    if width < 900:
        panel.get_by_text("Settings").click()
    expect(panel.get_by_text("Takes back what it wrote now and then.")).to_be_visible()
    endurance = panel.get_by_label("Endurance")
    expect(endurance).to_be_visible()  # its own parameters are not behind "more"
    expect(endurance).to_have_value("3")
    endurance.fill("4")
    panel.get_by_label("Mood").select_option("grim")
    panel.get_by_label("Initial length").fill("16")
    page.run()
    assert page.forwards > 4
    page.seek(4)
    expect(panel.locator(".story")).to_have_text("After 4 forwards, grim doubts.")
    expect(panel.locator(".pill")).to_have_text("overwrite")
    cells = page.cells()
    assert cells[:2] != [None, None] and cells[2:] == [None] * 14  # three written, one taken back
    page.seek(3)
    assert None not in page.cells()[:3]
    expect(panel.locator(".story")).to_have_text("No doubts. 1 token committed.")
    assert all(
        part in page.page.url for part in ("a.policy=doubter", "a.endurance=4", "a.mood=grim")
    )
    endurance.fill("1")
    endurance.press("Control+Enter")
    assert page.page.evaluate("document.activeElement.name") == "endurance"
    message = endurance.evaluate("input => input.validationMessage")
    assert message.startswith("This takes an integer")
