"""For everybody: contrast, what a screen reader hears, and names that are not cut."""

import pytest

from tests.scripted import says
from tests.server.playground import Playground, Start, Visit, expect

#: WCAG's contrast of every text on the page with what is painted behind it; [ratio, text, class].
CONTRASTS = """() => {
    const pen = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const parse = colour => {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = (top, below) =>
        [...[0, 1, 2].map(k => top[3] * top[k] + (1 - top[3]) * below[k]), 1];
    const light = colour => {
        const [r, g, b] = colour.slice(0, 3).map(v => v / 255)
            .map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = node => {
        if (!node) return [255, 255, 255, 1];
        return over(parse(getComputedStyle(node).backgroundColor), behind(node.parentElement));
    };
    const measure = (node, colour, text) => {
        let ink = parse(colour);
        for (let each = node; each; each = each.parentElement)
            ink[3] *= Number(getComputedStyle(each).opacity);
        const paper = behind(node);
        const [low, high] = [light(over(ink, paper)), light(paper)].sort((a, b) => a - b);
        return [(high + 0.05) / (low + 0.05), text, node.getAttribute("class") ?? node.tagName];
    };
    const found = [];
    for (const node of document.body.querySelectorAll("*")) {
        const seen = node.checkVisibility({visibilityProperty: true});
        if (!seen || node.closest(":disabled")) continue;
        const own = [...node.childNodes].filter(child => child.nodeType === Node.TEXT_NODE);
        const text = own.map(child => child.data.trim()).join("");
        const style = getComputedStyle(node);
        const isSvg = node instanceof SVGElement;
        if (text) found.push(measure(node, isSvg ? style.fill : style.color, text));
        if (node.placeholder && !node.value) {
            const colour = getComputedStyle(node, "::placeholder").color;
            found.push(measure(node, colour, node.placeholder));
        }
    }
    return found;
}"""


def dim_texts(page: "Playground") -> list[tuple[float, str, str]]:
    measured = page.page.evaluate(CONTRASTS)
    assert len(measured) > 40
    return [(round(ratio, 2), text, kind) for ratio, text, kind in measured if ratio < 4.5]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(scripted: Start, visit: Visit, scheme: str) -> None:
    server = scripted(says("text " * 5, confidence=0.95))
    still = {"color_scheme": scheme, "reduced_motion": "reduce"}
    page = visit(server.url, **still).open(a__initial_length=16, a__cache="window")
    page.side("a").get_by_text("More parameters").click()
    page.run()
    assert page.at(".canvas [data-born]").count() == 0  # nothing moves for who wants no motion
    running = "document.getAnimations().filter(each => each.playState === 'running').length"
    assert page.page.evaluate(running) == 0
    seen = {text for _, text, _ in page.page.evaluate(CONTRASTS)}
    assert {"0.25", "expand below this signal", "complete"} <= seen  # the region's labels too
    assert dim_texts(page) == []
    page.seek(1)
    assert dim_texts(page) == []
    page.at("#tab-chat").click()
    page.send("hello")
    assert dim_texts(page) == []
    page.at("#prompt").fill(" ")
    page.run_button.click()
    expect(page.at("#problem")).to_be_visible()
    assert dim_texts(page) == []


def test_a_screen_reader_hears_the_start_the_lengths_and_the_end(
    scripted: Start, visit: Visit
) -> None:
    text = "A text that does not fit the first canvas."
    page = visit(scripted(says(text, confidence=0.95)).url).open(a__initial_length=16)
    region = page.page.get_by_role("status").and_(page.at("#announcer"))
    expect(region).to_have_attribute("aria-live", "polite")
    page.page.evaluate(
        """() => {
            window.heard = [];
            const region = document.querySelector("#announcer");
            new MutationObserver(() => heard.push(region.textContent))
                .observe(region, {childList: true});
        }"""
    )
    page.run()
    expect(region).to_contain_text("The text is complete")
    start, *lengths, end = page.page.evaluate("heard")
    title = "ρ-EOS · 16"
    assert start == f"{title}: started with a canvas of 16 positions."
    assert lengths and lengths[0].startswith(f"{title}: the canvas grows from 16 to ")
    assert end.startswith(f"{title}: The text is complete: {len(text)} of ")
    page.at("#play").click()  # a replay is no news
    page.wait_until_idle()
    assert page.page.evaluate("heard.length") == len(lengths) + 2
