"""What the commands `reproduce` and `survey` share: their options, the plan they show, the run."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rho_eos.views.announced import load

if TYPE_CHECKING:
    from rho_eos.evals.runs.evaluation import Progress
    from rho_eos.evals.runs.sources import AnswerSource
    from rho_eos.evals.studies.result import Result
    from rho_eos.evals.studies.study import Cell, Plan, Study, Watch

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for tables, figures, all answers.")]
Tasks = Annotated[
    str, typer.Option(help="Names, separated by commas, in place of those that suit the model.")
]
Skip = Annotated[
    int,
    typer.Option(
        help="Leave out so many samples of each task first. So settings can be chosen on other "
        "samples than those that are reported."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what would be run.")]


def listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def run_study(
    study: "Study",
    plans: "Sequence[Plan]",
    engine_options: dict[str, Any],
    run: "Callable[[Callable[[], AnswerSource], Watch], list[Result]]",
    page: Path,
    dry_run: bool,
) -> int:
    """Run it with a progress bar, and print its tables and where its page is. The model is loaded
    when it is first needed."""
    from rich.console import Console

    from rho_eos.evals.runs.sources import ModelAnswers
    from rho_eos.evals.runs.table import show

    cells = study.cells(plans)
    if dry_run:
        return _show_plan(cells)
    console = Console(stderr=True, highlight=False)

    @cache
    def open_model() -> "AnswerSource":
        return ModelAnswers(load(engine_options))

    try:
        bar = _Bar(console, cells)
        with bar.bars:
            results = run(open_model, bar.show)
    except KeyboardInterrupt:
        console.print("rho-eos: interrupted; run the same command again to continue")
        return 130
    for result in results:
        print(f"\n{result.title}")
        for section, table in result.sections():
            print(f"\n{section}")
            show(table, "terminal")
        print("\n".join([*result.notes, *result.verdict_lines()]).replace("**", ""))
    print(f"\n{page}")
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


class _Bar:
    """The answers of all cells, and beside them the cell that is running. A log gets a line for
    each cell."""

    def __init__(self, console: Any, cells: "Sequence[Cell]") -> None:
        from rho_eos.cli.progress import progress_bars

        self._console = console
        self._count, self._done = len(cells), sum(cell.finished for cell in cells)
        self._before = 0  # answers of the cells that this command has finished
        self.bars = progress_bars(console)
        self.bars.speed_estimate_period = 600
        pending = sum(cell.samples for cell in cells if not cell.finished)
        self._task = self.bars.add_task("answers", total=pending, note="")

    def show(self, cell: "Cell", progress: "Progress") -> None:
        from rich.markup import escape

        right = f", {progress.correct / progress.done:.1%} right" if progress.done else ""
        told = f"{cell.label} · {cell.task}: {progress.done}/{progress.total}{right}"
        note = f"[{self._done + 1}/{self._count}] {told}"
        self.bars.update(self._task, completed=self._before + progress.done, note=escape(note))
        if progress.done == progress.total:
            self._done += 1
            self._before += cell.samples
            if not self._console.is_terminal:
                self._console.print(note, markup=False)
