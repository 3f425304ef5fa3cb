"""`rho-eos reproduce`: the paper's tables and figures."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.eval_options import BatchSize, Data, Limit, Repeats, ShuffleSeed, UnsafeCode
from rho_eos.views.announced import load

PART = "Part of lengths and stress (names, separated by commas)"

if TYPE_CHECKING:
    from rho_eos.evals.runs.evaluation import Progress
    from rho_eos.reproduce.cells import Cell, Study


def reproduce(
    engine_options: dict[str, Any],
    target: Annotated[
        str,
        typer.Argument(
            help="main, init-length, thresholds, expansion, signals, figures or all; lengths or "
            "stress: every way to choose a length",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for tables, figures and all answers.")
    ],
    tasks: Annotated[
        str, typer.Option(help="Names, separated by commas, in place of the profile's.")
    ] = "",
    limit: Limit = None,
    skip: Annotated[
        int,
        typer.Option(
            help="Leave out so many samples of each task first: choose on those behind them what "
            "is to be reported on the first ones."
        ),
    ] = 0,
    repeats: Repeats = 1,
    shuffle_seed: ShuffleSeed = None,
    batch_size: BatchSize = None,
    data: Data = None,
    profile: Annotated[
        str | None,
        typer.Option(help="Lengths: paper, or tiny (a quarter; default for embedded models)."),
    ] = None,
    unsafe_code: UnsafeCode = False,
    policies: Annotated[
        str, typer.Option(help="lengths and stress: run only these, by name.", rich_help_panel=PART)
    ] = "",
    lengths: Annotated[
        str, typer.Option(help="Only from these initial lengths.", rich_help_panel=PART)
    ] = "",
    thresholds: Annotated[str, typer.Option(help="Only with these τ.", rich_help_panel=PART)] = "",
    caches: Annotated[
        str, typer.Option(help="Only none (exact) or window.", rich_help_panel=PART)
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be run, and its rough cost.")
    ] = False,
) -> int:
    """Make the tables and figures of the ρ-EOS paper (arXiv 2601.22527) with a model of yours.

    Runs what a table needs and is not there yet: tables share runs, and an interrupted command goes
    on where it stopped. Markdown, CSV and LaTeX, PNG and SVG go to --out, with an index.md. For
    LLaDA-8B-Instruct and LLaDA-1.5 the published numbers stand beside ours.

    Two further targets compare all policies from several initial lengths, in one table and one
    picture: lengths, and stress for a model that compresses its answer on a short canvas. A part of
    them can be run at a time; the table shows all that is there.

    [bold]Examples[/bold]

      rho-eos reproduce all --limit 24 --out reproduction

      rho-eos reproduce main --model GSAI-ML/LLaDA-8B-Instruct --batch-size 8 --out llada

      rho-eos reproduce lengths --limit 20 --policies fixed,asym,scout --caches none --out lengths

      rho-eos reproduce thresholds --model GSAI-ML/LLaDA-1.5 --tasks gsm8k,mbpp --dry-run --out x
    """
    from rich.console import Console

    from rho_eos.config import EngineConfig
    from rho_eos.evals.runs.evaluation import find_data
    from rho_eos.evals.runs.sources import AnswerSource, EngineAnswers
    from rho_eos.evals.runs.table import show
    from rho_eos.reproduce.cells import Study
    from rho_eos.reproduce.plan import TARGETS, plan_figures, plan_tables
    from rho_eos.reproduce.profiles import choose_profile
    from rho_eos.reproduce.run import reproduce
    from rho_eos.reproduce.survey import SURVEYS, Part, plan_survey

    known = (*TARGETS, *SURVEYS)
    if target not in known:
        raise UserError(f"reproduce got {target!r}, but takes one of {', '.join(known)}")
    if batch_size is not None:
        engine_options["max_rows"] = batch_size
    config = EngineConfig.from_mapping(engine_options)
    chosen = choose_profile(config, profile)
    names = _listed(tasks)
    part = Part(
        policies=_listed(policies),
        lengths=_listed(lengths),
        thresholds=_listed(thresholds),
        caches=_listed(caches),
    )
    tables = [*plan_tables(target, chosen, names), *plan_survey(target, chosen, names, part)]
    figures = plan_figures(target, chosen, names)
    used = list(dict.fromkeys(task for plan in [*tables, *figures] for task in plan.tasks))
    study = Study(
        config=config,
        profile=chosen,
        folder=out,
        limit=limit,
        skip=skip,
        repeats=repeats,
        shuffle_seed=shuffle_seed,
        data=find_data(used, data or []),
    )
    cells = study.cells([*tables, *figures])
    if dry_run:
        _show_plan(study, cells)
        return 0
    console = Console(stderr=True, highlight=False)

    @cache
    def open_model() -> AnswerSource:
        return EngineAnswers(load(engine_options))

    try:
        with _Bars(console, cells) as bars:
            results = reproduce(study, tables, figures, open_model, bars, unsafe_code)
    except KeyboardInterrupt:
        console.print("rho-eos: interrupted; run the same command again to continue")
        return 130
    for result in results:
        print(f"\n{result.title}")
        for section, table in result.sections():
            print(f"\n{section}")
            show(table, "terminal")
        print(result.note.replace("**", ""))
    print(f"\n{out / 'index.md'}")
    return 0


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _show_plan(study: "Study", cells: "list[Cell]") -> None:
    """The cells, what is done of them, and what the rest will cost."""
    from rho_eos.evals.runs.table import Table, show

    rows = []
    left = 0.0
    for cell in cells:
        done = cell.samples if cell.finished else cell.done()
        missing = cell.positions * (1 - done / cell.samples)
        left += missing
        state = "finished" if cell.finished else f"{done} of {cell.samples}"
        rows.append([cell.label, cell.task, state, f"{missing:,.0f}"])
    show(Table(("cell", "task", "samples", "positions left"), rows, labels=2), "terminal")
    finished = sum(cell.finished for cell in cells)
    print(f"{finished} of {len(cells)} cells are finished; about {left:,.0f} positions are left.")
    if study.profile.seconds_per_position is not None:
        minutes = left * study.profile.seconds_per_position / 60
        about = "less than a minute" if minutes < 1 else f"about {minutes:,.0f} min"
        print(f"On two quiet CPU cores that takes {about}.")


class _Bars:
    """All cells, weighed by their estimated cost so that the time left means something; and the
    one that is running."""

    def __init__(self, console: Any, cells: "list[Cell]") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = console
        self._count = len(cells)
        self._done = sum(cell.finished for cell in cells)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=600,
        )
        pending = sum(cell.positions for cell in cells if not cell.finished)
        self._all = self._bars.add_task(self._title(), total=pending, note="")
        self._cell: Any = None
        self._before = 0.0  # positions of the cells that this command has finished

    def __enter__(self) -> "_Bars":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, cell: "Cell") -> None:
        name = f"{cell.label} · {cell.task}"
        self._cell = self._bars.add_task(name, total=cell.samples, note="")
        self._note = ""

    def show(self, cell: "Cell", progress: "Progress") -> None:
        right = f", {progress.correct / progress.done:.1%} right" if progress.done else ""
        self._note = f"{progress.done}/{progress.total}{right}"
        self._bars.update(self._cell, completed=progress.done, note=self._note)
        share = progress.done / progress.total
        self._bars.update(self._all, completed=self._before + share * cell.positions)

    def finish(self, cell: "Cell") -> None:
        self._done += 1
        self._before += cell.positions
        self._bars.remove_task(self._cell)
        self._bars.update(self._all, completed=self._before, description=self._title())
        if not self._console.is_terminal:
            name = f"{cell.label} · {cell.task}"
            self._console.print(f"[{self._done}/{self._count}] {name}: {self._note}", markup=False)

    def _title(self) -> str:
        return f"cells {self._done}/{self._count}"
