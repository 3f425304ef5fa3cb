"""A run with the window cache: what was computed, and what exact decoding would have."""

from rho_eos import DecodeParams
from tests.scripted import run_one, says
from tests.server.playground import Start, Visit, expect

SCRIPT = says("a text of some length")
FIELDS = {
    "initial_length": 80,
    "cache": "window",
    "cache_window": 8,
    "cache_steps": 12,
}


def test_both_costs_are_shown_and_the_signal_where_it_was_measured(
    scripted: Start, visit: Visit
) -> None:
    output = run_one(SCRIPT, DecodeParams(**FIELDS, trace=True), "hello")
    usage, trace = output.usage, output.trace
    assert 1 < usage.refreshes < usage.nfe
    page = visit(scripted(SCRIPT).url).open(
        "hello", **{f"a__{name}": value for name, value in FIELDS.items()}
    )
    panel = page.side("a")
    expect(panel.locator("[data-figure=savings]")).to_be_hidden()
    page.run()
    share = round(100 * usage.positions_evaluated / usage.positions_exact)
    assert page.figure("positions") == f"{usage.positions_evaluated:,}"
    assert page.figure("savings").startswith(f"{share}% of the {usage.positions_exact:,} positions")
    # ρ has a point for each refresh, joined over the windows; L and the cost one for each forward.
    assert page.line_points() == [usage.refreshes, usage.nfe, usage.nfe]

    count = next(k for k, record in enumerate(trace, 1) if not record.refresh)
    page.seek(count)
    window = trace[count - 1]
    expect(panel.locator(".pill")).to_have_text("window")
    expect(panel.locator(".story")).to_contain_text(
        f"A window: {window.computed} of {window.exact} positions computed, so the length holds."
    )
    assert page.figure("positions") == f"{sum(each.computed for each in trace[:count]):,}"

    panel.get_by_label("Cache", exact=True).select_option("none")
    page.run()
    expect(panel.locator("[data-figure=savings]")).to_be_hidden()
    assert len(page.line_points()) == 2


def test_the_form_starts_from_what_the_server_does_unasked(scripted: Start, visit: Visit) -> None:
    server = scripted(says("done"))
    server.service.llm.preparer.defaults = {"cache": "window", "cache_steps": 3}
    page = visit(server.url).open()
    panel = page.side("a")
    expect(panel.locator("[name=cache]")).to_have_value("window")
    expect(panel.locator("[name=cache_steps]")).to_have_value("3")
    panel.locator("[name=cache]").select_option("none")
    with page.page.expect_request("**/v1/chat/completions") as request:
        page.run()
    body = request.value.post_data_json
    assert body["cache"] == "none" and "cache_steps" not in body
