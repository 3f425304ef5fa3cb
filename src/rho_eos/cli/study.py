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
    from rho_eos.evals.studies.cost import Scale
    from rho_eos.evals.studies.result import Result
    from rho_eos.evals.studies.study import Cell, Plan, Study, Watch


def make_study(
    config: EngineConfig, measured: Measured, scale: "Scale", plans: "Sequence[Plan]"
) -> "Study":
    """What all runs of the plans have in common."""
    from rho_eos.evals.runs.evaluation import find_data
    from rho_eos.evals.studies.study import Study

    tasks = list(dict.fromkeys(task for plan in plans for task in plan.tasks))
    return Study(
        config=config,
        scale=scale,
        folder=measured.folder,
        limit=measured.limit,
        skip=measured.skip,
        repeats=measured.repeats,
        shuffle_seed=measured.shuffle_seed,
        data=find_data(tasks, measured.data),
    )


def run_study(
    study: "Study",
    plans: "Sequence[Plan]",
    run: "Callable[[Callable[[], AnswerSource], Watch], list[Result]]",
    page: str,
    dry_run: bool,
) -> int:
    """Run it with a progress bar, and print its tables and where its page is. The model is loaded
    when it is first needed."""
    from rich.console import Console

    from rho_eos.evals.runs.sources import EngineAnswers
    from rho_eos.evals.runs.table import show

    cells = study.cells(plans)
    if dry_run:
        return _show_plan(study, cells)
    console = Console(stderr=True, highlight=False)

    @cache
    def open_model() -> "AnswerSource":
        return EngineAnswers(load(study.config))

    try:
        with _bar(console, cells) as watch:
            results = run(open_model, watch)
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


def _show_plan(study: "Study", cells: "Sequence[Cell]") -> int:
    """The cells, what is done of them, and what the rest will cost."""
    from rho_eos.evals.runs.table import Table, show

    rows = []
    left = 0.0
    for cell in cells:
        done = cell.samples if cell.finished else cell.done
        missing = cell.positions * (1 - done / cell.samples)
        left += missing
        state = "finished" if cell.finished else f"{done} of {cell.samples}"
        rows.append([cell.label, cell.task, state, f"{missing:,.0f}"])
    show(Table(("cell", "task", "samples", "positions left"), rows, labels=2), "terminal")
    finished = sum(cell.finished for cell in cells)
    print(f"{finished} of {len(cells)} cells are finished; about {left:,.0f} positions are left.")
    if study.scale.seconds_per_position is not None:
        minutes = left * study.scale.seconds_per_position / 60
        about = "less than a minute" if minutes < 1 else f"about {minutes:,.0f} min"
        print(f"On two quiet CPU cores that takes {about}.")
    return 0


@contextmanager
def _bar(console: Any, cells: "Sequence[Cell]") -> "Iterator[Watch]":
    """All cells, counted in estimated positions so that the time left means something; beside it
    the cell that is running. A log gets a line for each cell."""
    from rich.markup import escape

    finished = sum(cell.finished for cell in cells)
    before = 0.0  # positions of the cells that this command has finished
    with progress_bars(console) as bars:
        bars.speed_estimate_period = 600
        pending = sum(cell.positions for cell in cells if not cell.finished)
        task = bars.add_task("positions", total=round(pending), note="")

        def show(cell: "Cell", progress: "Progress") -> None:
            nonlocal finished, before
            share = progress.done / progress.total
            right = f", {progress.correct / progress.done:.1%} right" if progress.done else ""
            told = f"{cell.label} · {cell.task}: {progress.done}/{progress.total}{right}"
            note = f"[{finished + 1}/{len(cells)}] {told}"
            bars.update(task, completed=round(before + share * cell.positions), note=escape(note))
            if share == 1:
                finished += 1
                before += cell.positions
                if not console.is_terminal:
                    console.print(note, markup=False)

        yield show
