"""What the commands `reproduce` and `survey` share: the plan they show, and how they run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from rho_eos.cli.options import Measured
from rho_eos.cli.running import CONTINUE, load, progress_bars
from rho_eos.config import EngineConfig

if TYPE_CHECKING:
    from rho_eos.evals.runs.evaluation import Progress
    from rho_eos.evals.runs.sources import AnswerSource
    from rho_eos.evals.studies.study import Cell, Plan, Result, Study, Watch


def make_study(
    config: EngineConfig, measured: Measured, plans: "Sequence[Plan]", panels: bool
) -> "Study":
    """The study that a command asks for: what all runs of its plans have in common."""
    from rho_eos.evals.runs.evaluation import find_data
    from rho_eos.evals.studies.study import Study

    tasks = list(dict.fromkeys(task for plan in plans for task in plan.tasks))
    data = find_data(tasks, measured.data)
    return Study(
        config=config,
        folder=measured.folder,
        selection=measured.selection,
        data=data,
        panels=panels,
    )


def run_study(
    study: "Study",
    plans: "Sequence[Plan]",
    results_of: "Callable[[Study, Iterator[Plan]], list[Result]]",
    page: str,
    dry_run: bool,
    unsafe_code: bool,
) -> int:
    """Run it with a progress bar, and print its tables and where its page is. The model is loaded
    when it is first needed.

    `results_of` makes the tables, each when the plan that it needs comes, finished.
    """
    from rich.console import Console

    from rho_eos.evals.runs.sources import ModelAnswers
    from rho_eos.evals.runs.table import show

    cells = study.cells(plans)
    if dry_run:
        return _show_plan(cells)
    console = Console(stderr=True, highlight=False)

    @cache
    def open_model() -> "AnswerSource":
        return ModelAnswers(load(study.config))

    try:
        with _bar(console, cells) as watch:
            results = results_of(study, study.run(plans, open_model, watch, unsafe_code))
    except KeyboardInterrupt:
        console.print(f"rho-eos: interrupted; {CONTINUE}")
        return 130
    for result in results:
        print(f"\n{result.title}")
        for section, table in result.sections():
            print(f"\n{section}")
            show(table, "terminal")
        print("\n".join([*result.notes, *result.verdict_lines()]).replace("**", ""))
    print(f"\n{study.folder / page}")
    return 0


def _show_plan(cells: "Sequence[Cell]") -> int:
    """The cells, and how many answers each of them has and needs."""
    from rho_eos.evals.runs.table import Table, show

    done = [cell.samples if cell.finished else cell.done for cell in cells]
    rows = [
        [cell.label, cell.task, f"{have} of {cell.samples}"]
        for cell, have in zip(cells, done, strict=True)
    ]
    show(Table(("cell", "task", "answers"), rows, labels=2), "terminal")
    finished, left = sum(cell.finished for cell in cells), sum(cell.samples for cell in cells)
    left -= sum(done)
    print(f"{finished} of {len(cells)} cells are finished; {left:,} answers are missing.")
    return 0


@contextmanager
def _bar(console: Any, cells: "Sequence[Cell]") -> "Iterator[Watch]":
    """The answers of all cells, and beside them the cell that is running. A log gets a line for
    each cell."""
    from rich.markup import escape

    finished = sum(cell.finished for cell in cells)
    before = 0  # answers of the cells that this command has finished
    with progress_bars(console) as bars:
        bars.speed_estimate_period = 600
        pending = sum(cell.samples for cell in cells if not cell.finished)
        task = bars.add_task("answers", total=pending, note="")

        def show(cell: "Cell", progress: "Progress") -> None:
            nonlocal finished, before
            right = f", {progress.correct / progress.done:.1%} right" if progress.done else ""
            told = f"{cell.label} · {cell.task}: {progress.done}/{progress.total}{right}"
            note = f"[{finished + 1}/{len(cells)}] {told}"
            bars.update(task, completed=before + progress.done, note=escape(note))
            if progress.done == progress.total:
                finished += 1
                before += cell.samples
                if not console.is_terminal:
                    console.print(note, markup=False)

        yield show
