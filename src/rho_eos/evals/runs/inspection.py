"""One HTML file to read a run in: no server, no network, nothing beside it.

The page's style, script and data are put into it. Data is JSON in which no `<` is left, so that a
model's text cannot end the script that holds it; the page shows texts as text only.
"""

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams
from rho_eos.evals.runs.compare import read_runs, runs_in, runs_table, tests_table
from rho_eos.evals.runs.report import summarise, summary_table
from rho_eos.evals.runs.run_folder import SETTINGS, Line, read_samples, read_settings
from rho_eos.evals.runs.table import Table
from rho_eos.views.narration import RHO, signal_name

STATIC = Path(__file__).parent / "static"
REPORT = "report.html"
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
    return _filled("inspect.html", {"/*SCRIPT*/": _static("inspect.js"), "/*DATA*/": text})


def is_sweep(folder: Path) -> bool:
    """Whether it is no run itself, but holds some."""
    return not (folder / SETTINGS).exists() and any(folder.glob(f"*/{SETTINGS}"))


def sweep_page(folder: Path, page: Path) -> tuple[str, list[Path]]:
    """The runs of a sweep side by side, to be written to `page`, and the folders it leads to."""
    inside = runs_in(folder)
    runs = read_runs(inside)
    links = {
        name: os.path.relpath(each / REPORT, page.parent)
        for (name, _), each in zip(runs, inside, strict=True)
    }
    tables = [_html(runs_table(runs), links)]
    if len(runs) > 1:
        with suppress(UserError):  # they have no sample in common yet
            tables.append(_html(tests_table(runs), links))
    shown = "\n".join(f'<div class="scroll">{table}</div>' for table in tables)
    name = escape(folder.absolute().name)
    return _filled("sweep.html", {"<!--NAME-->": name, "<!--TABLES-->": shown}), inside


def _html(table: Table, links: dict[str, str]) -> str:
    """The first column names a run, and leads to its report."""

    def row(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    body = []
    for name, *others in table.rows:
        link = f'<a href="{escape(quote(links[name]))}">{escape(name)}</a>'
        body.append(row([link, *map(escape, others)], "td"))
    head = row(map(escape, table.columns), "th")
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


def _region(params: dict[str, Any]) -> tuple[float, float] | None:
    """The equilibrium region to shade behind ρ, where ρ is what decides."""
    try:
        checked = DecodeParams.from_mapping(params)
    except UserError:  # gold, or a policy that is not installed here, or another version's
        return None
    return checked.region if signal_name(checked) == RHO else None


def _sample(line: Line) -> dict[str, Any]:
    """A line with its trace reduced to the curves, and to what the canvas can be replayed from."""
    trace = line.pop("trace", None)
    if trace:
        drawn = [name for name in CURVES if all(name in record for record in trace)]
        line["curves"] = {name: [record[name] for record in trace] for name in drawn}
        line["steps"] = [{name: step[name] for name in REPLAYED if name in step} for step in trace]
    return line


def _filled(name: str, content: dict[str, str]) -> str:
    """A page with each mark replaced; what is put in is not searched for marks again."""
    content = {"/*STYLE*/": _static("inspect.css"), **content}
    marks = re.compile("|".join(map(re.escape, content)))
    return marks.sub(lambda found: content[found[0]], _static(name))


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
