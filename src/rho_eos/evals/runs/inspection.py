"""One HTML file to read a run in: no server, no network, nothing beside it.

The page's style, script and data are put into it. Data is JSON in which no `<` is left, so that a
model's text cannot end the script that holds it; the page shows texts as text only.
"""

import json
from pathlib import Path
from typing import Any

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import find_policy
from rho_eos.errors import UserError
from rho_eos.evals.runs.report import summarise, summary_table
from rho_eos.evals.runs.run_folder import Line, read_samples, read_settings

STATIC = Path(__file__).parent / "static"
#: What of the steps' records is drawn over them; earlier versions had no cache.
CURVES = ("rho", "length", "masks", "computed", "exact", "refresh")
#: What of a step's record the page needs to draw the canvas; earlier versions wrote less.
REPLAYED = ("action", "change", "committed", "moved", "written")


def inspection_page(folder: Path) -> str:
    """The report of a run, finished or not, as one self-contained page."""
    lines = read_samples(folder, traces=True)
    about = read_settings(folder)
    table = summary_table([(folder.absolute().name, summarise(lines))])
    data = {
        "name": folder.absolute().name,
        "settings": about["settings"],
        "sessions": about["sessions"],
        "region": _region(about["settings"]["params"]),
        "summary": {"columns": table.columns[1:], "rows": [row[1:] for row in table.rows]},
        "samples": [_sample(line) for line in lines],
    }
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    page = _static("inspect.html")
    for mark, content in (
        ("/*STYLE*/", _static("inspect.css")),
        ("/*SCRIPT*/", _static("inspect.js")),
        ("/*DATA*/", text),
    ):
        page = page.replace(mark, content)
    return page


def _region(params: dict[str, Any]) -> tuple[float, float] | None:
    """The equilibrium region to shade behind ρ, where ρ is what decides."""
    try:
        checked = DecodeParams.from_mapping(params)
    except UserError:  # gold, or a policy that is not installed here, or another version's
        low, high = params.get("rho_low"), params.get("rho_high")
        return None if low is None or high is None else (low, high)
    density = find_policy(checked.policy).signal_name(checked) == "ρ"
    return checked.region if density else None


def _sample(line: Line) -> dict[str, Any]:
    """A line with its trace reduced to the curves, and to what the canvas can be replayed from."""
    trace = line.pop("trace", None)
    if trace:
        line["curves"] = {
            name: [record[name] for record in trace]
            for name in CURVES
            if all(name in record for record in trace)
        }
        line["steps"] = [
            {name: record[name] for name in REPLAYED if name in record} for record in trace
        ]
    return line


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
