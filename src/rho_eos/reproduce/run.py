"""Run what is missing, then make the tables and figures of what is there.

cells = study.cells(plans)        each once, whatever tables share it
evaluate(cell)                    unless finished; an interrupted one goes on
write_table / write_figures       as soon as all their cells are there; of a survey, what is there
write_index
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.evals import find_task
from rho_eos.evals.runs.evaluation import Progress, evaluate
from rho_eos.evals.runs.report import write_summary
from rho_eos.evals.runs.run_folder import write_json
from rho_eos.evals.runs.sources import AnswerSource
from rho_eos.reproduce.cells import Cell, Study
from rho_eos.reproduce.index import ABOUT, about, read_about, write_index
from rho_eos.reproduce.plan import Plan
from rho_eos.reproduce.survey import Survey
from rho_eos.reproduce.survey_table import survey_of
from rho_eos.reproduce.tables import Result, comparison_of, table_of
from rho_sandbox import probe_backend


class Watcher(Protocol):
    """Whoever shows how far it is."""

    def start(self, cell: Cell) -> None: ...
    def show(self, cell: Cell, progress: Progress) -> None: ...
    def finish(self, cell: Cell) -> None: ...


def reproduce(
    study: Study,
    tables: Sequence[Plan],
    figures: Sequence[Plan],
    open_source: Callable[[], AnswerSource],
    watcher: Watcher,
    unsafe_code: bool = False,
) -> list[Result]:
    """The tables, all of them on disk together with the figures and the index."""
    check_folder(study)
    drawn = bool(figures) or any(isinstance(plan, Survey) for plan in tables)
    check_means(study.cells([*tables, *figures]), drawn, unsafe_code)

    def run(plans: Sequence[Plan]) -> None:
        for cell in study.cells(plans):
            if not cell.finished:
                watcher.start(cell)
                run_cell(cell, open_source, watcher, unsafe_code)
                watcher.finish(cell)

    study.folder.mkdir(parents=True, exist_ok=True)
    write_json(study.folder / ABOUT, about(study))
    results = []
    for plan in tables:
        run([plan])
        made = _made_of(study, plan)
        for result in made:
            result.write(study.folder)
        results += made
        write_index(study.folder)
    if figures:
        run(figures)
        _write_figures(study, tables, figures)
        write_index(study.folder)
    return results


def _made_of(study: Study, plan: Plan) -> list[Result]:
    """The tables of a plan whose cells are there; a survey draws its picture as well."""
    if isinstance(plan, Survey):
        _drawing("survey_figure").write_survey_figure(study, plan)
        return [survey_of(study, plan)]
    return [table_of(study, plan), *(comparison_of(study, plan) if plan.name == "main" else [])]


def run_cell(
    cell: Cell, open_source: Callable[[], AnswerSource], watcher: Watcher, unsafe_code: bool
) -> None:
    def show(progress: Progress) -> None:
        watcher.show(cell, progress)

    lines = evaluate(cell.evaluation, cell.folder, open_source, unsafe_code, show)
    write_summary(cell.folder, lines)


def check_folder(study: Study) -> None:
    """Tables of two models would overwrite each other."""
    found = read_about(study.folder)
    if found is not None and found["model"] != study.config.model:
        raise UserError(
            f"{study.folder} holds the reproduction of {found['model']}, not of "
            f"{study.config.model}: give another --out"
        )


def check_means(cells: Sequence[Cell], figures: bool, unsafe_code: bool) -> None:
    """What the last cell will need is looked for before the first one runs."""
    pending = [cell for cell in cells if not cell.finished]
    if any(find_task(cell.task).runs_code for cell in pending):
        probe_backend(unsafe_code)
    if figures:
        _drawing("figures")


def _drawing(module: str) -> Any:
    try:
        return importlib.import_module(f"rho_eos.reproduce.{module}")
    except ImportError:
        raise needs_extra("drawing figures", "matplotlib", "plots") from None


def _write_figures(study: Study, tables: Sequence[Plan], plans: Sequence[Plan]) -> None:
    drawing = _drawing("figures")
    scatter, curves = plans
    main = next((plan for plan in tables if plan.name == "main"), None)
    folder: Path = study.folder
    drawing.write_figures(folder, study, scatter, curves, main)
