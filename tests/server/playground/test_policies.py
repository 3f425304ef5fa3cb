"""The form is the server's: every policy, rule and cache it has, each with its parameters."""

from typing import Any

from tests.scripted import says
from tests.server.conftest import Process
from tests.server.playground import Playground, Start, Visit, expect

LENGTHS = {"initial_length", "max_tokens"}  # whose defaults are cut to the model's context


def check_form(
    page: Playground, axes: dict[str, Any], policy: str, commit: str, cache: str
) -> None:
    """Every parameter of the three has a field or a widget of its own, and nothing else has."""
    rule = {} if axes["policy"][policy]["own_commit"] else axes["commit"][commit]["parameters"]
    kept = axes["cache"][cache]["parameters"] if cache != "none" else {}
    specs = {
        {"max_new_tokens": "max_tokens"}.get(name, name): spec
        for name, spec in (rule | kept | axes["policy"][policy]["parameters"]).items()
        if name not in ("trace", "logprobs")
    }
    form = page.side("a").locator("form")
    shown = {field.get_attribute("name") for field in form.locator(".field [name]").all()}
    sliders = {"rho_low", "rho_high"} if form.get_by_role("slider").count() else set()
    chips = {"preset"} if form.locator("[data-preset]").count() else set()
    assert shown | sliders | chips == set(specs), (policy, commit, cache)
    for name in shown - LENGTHS:
        spec, field = specs[name], form.locator(f".field [name={name}]")
        if spec["type"] == "flag":
            assert field.is_checked() == spec["default"], name
        elif spec["type"] in ("integer", "number") and (policy, cache) != ("scout", "window"):
            text = "" if spec["default"] is None else f"{spec['default']:g}"
            assert field.input_value() == text, name
        elif spec["type"] == "choice":
            assert field.locator("option").all_inner_texts() == spec["choices"]


def test_every_policy_rule_and_cache_of_the_schema_has_its_form(
    server: Process, visit: Visit
) -> None:
    axes = server.axes
    page = visit(server.url).open()
    form = page.side("a").locator("form")
    form.get_by_text("More parameters").click()
    chosen = {"policy": "rho-eos", "commit": "threshold", "cache": "none"}
    for axis, names in axes.items():
        assert names
        offered = form.locator(f"select[name={axis}] option")
        shown = {option.get_attribute("value") for option in offered.all()}
        # A cache of block diffusion models is refused on this one.
        assert shown - {"none"} == set(names) - {"blocks" if axis == "cache" else ""}
        for name, about in names.items():
            if name not in shown:
                continue
            form.locator(f"select[name={axis}]").select_option(name)
            expect(form.get_by_text(about["summary"])).to_be_visible()
            expect(form.get_by_label("Commit rule")).to_be_visible(
                visible=not (axis == "policy" and about["own_commit"])
            )
            check_form(page, axes, **(chosen | {axis: name}))
        form.locator(f"select[name={axis}]").select_option(chosen[axis])
    for axis, name in {"policy": "scout", "commit": "wino", "cache": "window"}.items():
        form.locator(f"select[name={axis}]").select_option(name)
    check_form(page, axes, "scout", "wino", "window")
    expect(form.locator("[name=margin]")).to_have_value("16")  # what scout does with a cache
    expect(page.side("a").locator("h2")).to_have_text("Scout · WINO · Window cache")


def test_rule_and_cache_are_sent_and_keep_what_they_share(scripted: Start, visit: Visit) -> None:
    """Only what was chosen is sent."""
    url = scripted(says("done")).url
    assert sent_by(visit(url).open()) == {"policy": "rho-eos"}
    page = visit(url).open(
        a__commit="wino", a__draft="0.4", a__seed="3", a__cache="window", a__cache_steps="7"
    )
    form = page.side("a").locator("form")
    expect(form.get_by_label("Draft")).to_have_value("0.4")
    own = {"commit": "wino", "cache": "window", "draft": 0.4, "seed": 3, "cache_steps": 7}
    assert sent_by(page) == {"policy": "rho-eos", **own}
    form.get_by_label("Commit rule").select_option("quota")
    form.get_by_label("Steps per block").fill("4")
    form.get_by_label("Cache", exact=True).select_option("none")
    wanted: dict[str, Any] = {"commit": "quota", "steps_per_block": 4, "seed": 3}
    assert sent_by(page) == {"policy": "rho-eos", **wanted}
    form.get_by_text("More parameters").click()
    form.get_by_label("Horizon", exact=True).fill("5")
    form.get_by_label("Length policy").select_option("fixed")
    # What the other policy has as well, it keeps.
    assert sent_by(page) == {"policy": "fixed", **wanted}
    form.get_by_label("Length policy").select_option("released")  # it has a rule of its own
    assert sent_by(page) == {"policy": "released", "seed": 3}


def sent_by(page: Playground) -> dict[str, Any]:
    """What a run asks for beyond the prompt."""
    with page.page.expect_request("**/v1/chat/completions") as request:
        page.run()
    body = request.value.post_data_json
    constant = ("model", "messages", "stream", "stream_mode")
    return {name: body[name] for name in body if name not in constant}


def test_a_policy_of_a_plugin_is_chosen_changed_run_and_explained(
    plugin_server: Process, visit: Visit
) -> None:
    page = visit(plugin_server.url, viewport={"width": 390, "height": 900}).open("hello")
    panel = page.side("a")
    panel.get_by_label("Length policy").select_option(label="Doubter")
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
    expect(panel.locator(".story")).to_have_text("After 4 forwards, grim doubts. 1 taken back.")
    expect(panel.locator(".pill")).to_have_text("overwrite")
    cells = page.cells()
    assert cells[:2] != [None, None] and cells[2:] == [None] * 14  # three written, one taken back
    assert "a.endurance=4" in page.page.url and "a.mood=grim" in page.page.url
