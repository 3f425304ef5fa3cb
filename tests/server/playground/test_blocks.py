"""A block diffusion model: what is offered for it, and which blocks are finished or open."""

from tests.server.conftest import Process
from tests.server.playground import Visit, expect

BLOCK = 16  # of the model


def test_what_is_offered_is_what_the_model_takes(block_server: Process, visit: Visit) -> None:
    page = visit(block_server.url).open()
    form = page.side("a").locator("form")
    for axis, names in block_server.axes.items():
        options = form.locator(f"select[name={axis}] option").all()
        offered = {option.get_attribute("value") for option in options} - {"none"}
        answers = {name: block_server.web.chat(**{axis: name}, max_tokens=4) for name in names}
        assert offered == {name for name, each in answers.items() if each.status_code == 200}, axis
    expect(form.get_by_label("Length policy")).to_have_value("blocks")
    expect(form.get_by_label("Cache", exact=True)).to_have_value("blocks")
    expect(form.locator("[name=block_length]")).to_have_value(str(BLOCK))
    expect(form.locator("[name=initial_length]")).to_have_count(0)
    expect(page.at("#suffix-box")).to_be_hidden()
    expect(page.at(".intro")).to_contain_text("block after block")
    expect(page.at("#asks-rho")).to_be_hidden()
    form.get_by_label("Length policy").select_option("fixed")
    expect(form.locator("[name=initial_length]")).to_have_count(1)
    page.open(a__policy="rho-eos", suffix="behind").run()  # a link to another model's page
    assert page.text()


def test_finished_blocks_are_told_apart_from_the_open_one(
    block_server: Process, visit: Visit
) -> None:
    page = visit(block_server.url).open("hello", a__max_tokens=48)
    panel = page.side("a")
    expect(panel.get_by_label("Legend")).to_contain_text("kept block")
    page.run()
    usage = block_server.web.chat("hello", max_tokens=48).json()["usage"]
    before = usage["prompt_tokens"] % BLOCK  # of the prompt, in the first block
    assert page.forwards == usage["rho_eos"]["nfe"]
    opened = set()
    for count in range(1, page.forwards + 1):
        page.seek(count - 1)
        first = page.cells().index(None)  # the open block holds the first MASK
        kept = max(0, (first + before) // BLOCK * BLOCK - before)
        page.seek(count)
        marked = panel.evaluate(
            """panel => [...panel.querySelectorAll(".canvas .cell:not(.leaving)")]
                .map(cell => cell.matches(".kept"))"""
        )
        assert marked == [at < kept for at in range(len(marked))], count
        label = panel.locator(".canvas").get_attribute("aria-label") or ""
        end = min(len(marked), kept + BLOCK - (0 if kept else before))
        assert f"block {kept + 1}–{end} open, {kept} positions in kept blocks" in label
        expect(panel.locator(".length")).to_contain_text(f"block {kept + 1}–{end}")
        opened.add(kept)
    assert len(opened) > 2
    panel.locator(".canvas .kept").first.hover()
    expect(page.at(".tooltip")).to_contain_text("kept block")
    assert f"of the {usage['rho_eos']['positions_exact']:,} positions" in page.figure("savings")
