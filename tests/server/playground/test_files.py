"""What can be taken home from the page: charts as pictures, a run as JSON."""

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

from PIL import Image

from rho_eos import DecodeParams
from tests.scripted import arbitrary, run_one
from tests.server.playground import Playground, Start, Visit
from tests.server.scripted_server import MODEL

SCRIPT = arbitrary(3, [0.1, 0.9, 0.5], sure=0.1)
SVG = "{http://www.w3.org/2000/svg}"


def saved(page: "Playground", button: str) -> tuple[str, bytes]:
    """The name and the content of the file that a button gives."""
    with page.page.expect_download() as download:
        page.side("a").get_by_role("button", name=button, exact=True).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_charts_are_saved_as_they_look(scripted: Start, visit: Visit) -> None:
    page = visit(scripted(SCRIPT).url, color_scheme="dark")
    page.open(a__initial_length=32, a__max_tokens=80)
    assert page.at(".files:visible").count() == 0  # nothing to save yet
    page.run()
    name, content = saved(page, "Save the chart of length as SVG")
    assert name == "rho-eos-rho-eos-length.svg"
    root = ET.fromstring(content)
    width, height = int(float(root.get("width", 0))), int(float(root.get("height", 0)))
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert MODEL in (texts[0] or "")
    drawn = [node.get("d") or "" for node in root.iter(f"{SVG}path")]
    assert max(path.count("L") + path.count("M") for path in drawn) == page.forwards
    assert b"var(" not in content and b"class=" not in content  # it needs no style sheet
    paper = next(root.iter(f"{SVG}rect")).get("fill") or ""
    card = tuple(int(part) for part in paper.removeprefix("rgb(").rstrip(")").split(","))
    assert max(card) < 60  # it was saved from the dark page

    name, content = saved(page, "Save the chart of signal as PNG")
    assert name == "rho-eos-rho-eos-signal.png"
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    assert picture.size == (2 * width, 2 * height)
    assert picture.getpixel((1, 1)) == card
    assert len(picture.getcolors(1 << 20) or ()) > 10  # lines, the band, letters


def test_a_run_is_saved_with_all_its_steps(scripted: Start, visit: Visit) -> None:
    params = DecodeParams(initial_length=32, max_new_tokens=80, trace=True)
    want = run_one(SCRIPT, params, "hello")
    page = visit(scripted(SCRIPT).url).open("hello", a__initial_length=32, a__max_tokens=80).run()
    name, content = saved(page, "Save JSON")
    run = json.loads(content)
    assert name == "rho-eos-rho-eos.json"
    assert run["request"]["messages"] == [{"role": "user", "content": "hello"}]
    assert (run["start"]["length"], run["start"]["policy"]) == (32, "rho-eos")
    assert run["done"]["text"] == want.text and run["stopped"] is False
    assert [(step["rho"], step["change"], step["exact"]) for step in run["steps"]] == [
        (record.rho, record.change, record.exact) for record in want.trace
    ]
