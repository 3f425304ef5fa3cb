"""`rho-eos eval`: a model on benchmarks, one policy or a sweep of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rho_eos.cli import options
from rho_eos.cli.options import listed
from rho_eos.cli.running import CONTINUE, open_executor, progress_bars

if TYPE_CHECKING:
    from rho_eos.evals.runs.evaluation import Progress
    from rho_eos.evals.runs.run_folder import Line


def evaluate(
    engine_options: dict[str, Any],
    decode_options: dict[str, Any],
    out: Path = typer.Option(..., "--out", "-o", help="Folder of this run. Run again to continue."),
    tasks: str = typer.Option("", help="Names, separated by commas: {tasks}."),
    task_file: list[Path] | None = typer.Option(
        None, metavar="FILE", help="A task described in a YAML file; may be given repeatedly."
    ),
    limit: options.Limit = None,
    repeats: options.Repeats = 1,
    shuffle_seed: options.ShuffleSeed = None,
    data: options.Data = None,
    sweep: Path | None = typer.Option(
        None, help="A YAML file of several policies by name; each gets a folder in --out."
    ),
    unsafe_code: options.UnsafeCode = False,
    ray: options.RayAddress = None,
    ray_actors: options.RayActors = None,
) -> int:
    """Measure a model on benchmarks: accuracy, lengths and costs.

    Every sample is written to --out as it finishes, and the same command continues a run that was
    interrupted. The policy [bold]gold[/bold] grades the reference answers, without a model.

    [bold]Examples[/bold]

      rho-eos eval --tasks tiny-gsm,tiny-math --limit 200 --out runs/asym

      rho-eos eval --model GSAI-ML/LLaDA-8B-Instruct --tasks gsm8k --policy daedal --out runs/daedal

      rho-eos eval --tasks gsm8k --policy gold --data gsm8k_test.jsonl --out runs/gold

      rho-eos eval --tasks tiny-gsm --sweep policies.yaml --out runs/sweep

      rho-eos eval --task-file examples/task.yaml --out runs/own
    """
    from rich.console import Console

    from rho_eos.config import EngineConfig
    from rho_eos.evals.runs.evaluation import Evaluation, evaluate, find_data
    from rho_eos.evals.runs.report import summary_table, write_summary
    from rho_eos.evals.runs.sources import AnswerSource, GoldAnswers, ModelAnswers
    from rho_eos.evals.runs.sweep import params_of, read_sweep
    from rho_eos.evals.runs.table import show
    from rho_eos.evals.tasks.task_file import read_task_file

    names = tuple(listed(tasks))
    file_tasks = tuple(read_task_file(path) for path in task_file or [])
    policies = {out: params_of(decode_options)}
    if sweep is not None:
        policies = {
            out / name: params for name, params in read_sweep(sweep, decode_options).items()
        }
    config = EngineConfig.from_mapping(engine_options)
    cells = {
        folder: Evaluation(
            tasks=names,
            file_tasks=file_tasks,
            engine=config if params else None,
            params=params,
            limit=limit,
            repeats=repeats,
            shuffle_seed=shuffle_seed,
            data=find_data(names, data or []),
        )
        for folder, params in policies.items()
    }
    console = Console(stderr=True, highlight=False)

    @cache
    def open_model() -> AnswerSource:
        with console.status(f"loading {config.model}"):
            return ModelAnswers(open_executor(ray, ray_actors, engine_options))

    def run(cell: Evaluation, folder: Path) -> "list[Line]":
        source = open_model if cell.engine else GoldAnswers
        with _bars(console, folder.name) as show_progress:
            return evaluate(cell, folder, source, unsafe_code, show_progress)

    summaries = []
    for folder, cell in cells.items():
        try:
            summaries.append((folder.absolute().name, write_summary(folder, run(cell, folder))))
        except KeyboardInterrupt:
            console.print(f"rho-eos: interrupted; {CONTINUE}")
            return 130
    table = summary_table(summaries)
    if sweep is not None:
        table.write(out / "table")
    show(table, "terminal")
    return 0


@contextmanager
def _bars(console: Any, run: str) -> "Iterator[Callable[[Progress], None]]":
    """One progress bar per task, with the accuracy so far."""
    with progress_bars(console) as bars:
        tasks: dict[str, Any] = {}

        def show(progress: "Progress") -> None:
            name = f"{run} · {progress.task}"
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=progress.total, note="")
            parts = [f"{progress.correct / progress.done:.1%} right"] if progress.done else []
            if progress.seconds and progress.tokens:
                parts.append(f"{progress.tokens / progress.seconds:,.0f} tokens/s")
            note = " · ".join(parts)
            bars.update(tasks[name], completed=progress.done, note=note)
            if progress.done == progress.total and not console.is_terminal:
                console.print(f"{name}: {progress.total} done, {note}")

        yield show
