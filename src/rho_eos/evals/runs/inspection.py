"""One HTML file to read a run in: no server, no network, nothing beside it.

The page's style, script and data are put into it by Jinja, which escapes texts. Data is JSON in
which no `<` is left, so that a model's text cannot end the script that holds it.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams
from rho_eos.evals.runs.compare import read_runs, runs_in, runs_table, tests_table
from rho_eos.evals.runs.report import summarise, summary_table
from rho_eos.evals.runs.run_folder import SETTINGS, read_samples, read_settings
from rho_eos.views.narration import RHO, signal_name

STATIC = Path(__file__).parent / "static"
REPORT = "report.html"


def inspection_page(folder: Path) -> str:
    """The report of a run, finished or not, as one self-contained page."""
    lines = read_samples(folder, traces=True)
    about = read_settings(folder)
    table = summary_table([(folder.absolute().name, summarise(lines))])
    data = {
        **about,
        "name": folder.absolute().name,
        "region": _region(about["settings"]["params"]),
        "summary": {"columns": table.columns[1:], "rows": [row[1:] for row in table.rows]},
        "samples": lines,
    }
    return _page("inspect.html", data=data)


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
    tables = [runs_table(runs)]
    if len(runs) > 1:
        with suppress(UserError):  # they have no sample in common yet
            tables.append(tests_table(runs))
    return _page("sweep.html", name=folder.absolute().name, tables=tables, links=links), inside


def _region(params: dict[str, Any]) -> tuple[float, float] | None:
    """The equilibrium region to shade behind ρ, where ρ is what decides."""
    try:
        checked = DecodeParams.from_mapping(params)
    except UserError:  # gold, or a policy that is not installed here
        return None
    return checked.region if signal_name(checked) == RHO else None


def _page(file: str, /, **content: Any) -> str:
    pages = Environment(loader=FileSystemLoader(STATIC), autoescape=True)
    pages.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False}
    return pages.get_template(file).render(content)
