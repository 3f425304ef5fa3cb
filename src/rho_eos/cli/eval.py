"""`rho-eos eval`: a model on benchmarks, one policy or a sweep of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rho_eos.cli import options
from rho_eos.cli.running import CONTINUE, open_executor, progress_bars
from rho_eos.config import EngineConfig

if TYPE_CHECKING:
    from rho_eos.evals.runs.evaluation import Progress
    from rho_eos.evals.runs.run_folder import Line


def evaluate(
    engine: EngineConfig,
    measured: options.Measured,
    decode_options: dict[str, Any],
    task_file: list[Path] | None = typer.Option(
        None, metavar="FILE", help="A task described in a YAML file; may be given repeatedly."
    ),
    sweep: Path | None = typer.Option(
        None,
        help="A YAML file of several policies by name, or of a grid of values; each run gets a "
        "folder in --out.",
    ),
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

    from rho_eos.evals.runs.evaluation import Evaluation, evaluate, find_data
    from rho_eos.evals.runs.report import summary_table, write_summary, wrong_references
    from rho_eos.evals.runs.run_folder import read_samples
    from rho_eos.evals.runs.sources import AnswerSource, GoldAnswers, ModelAnswers
    from rho_eos.evals.runs.sweep import Point, params_of, read_sweep
    from rho_eos.evals.runs.table import show
    from rho_eos.evals.runs.tidy import TIDY, write_tidy
    from rho_eos.evals.tasks.task_file import read_task_file

    out, names = measured.folder, tuple(measured.task_names)
    file_tasks = tuple(read_task_file(path) for path in task_file or [])
    points: dict[Path, Point] = {out: (params_of(decode_options), None)}
    if sweep is not None:
        points = {out / name: point for name, point in read_sweep(sweep, decode_options).items()}
    cells = {
        folder: Evaluation(
            tasks=(*names, *file_tasks),
            engine=(engine.replaced(model=model) if model else engine) if params else None,
            params=params,
            selection=measured.selection,
            data=find_data(names, measured.data),
        )
        for folder, (params, model) in points.items()
    }
    models = list(dict.fromkeys(model for _, model in points.values()))
    console = Console(stderr=True, highlight=False)

    loaded: dict[str, AnswerSource] = {}

    def run(cell: Evaluation, folder: Path) -> "list[Line]":
        def source() -> AnswerSource:
            config = cell.engine
            if config is None:
                return GoldAnswers()
            if config.model not in loaded:
                loaded.clear()  # two models need not fit at once
                with console.status(f"loading {config.model}"):
                    loaded[config.model] = ModelAnswers(open_executor(ray, ray_actors, config))
            return loaded[config.model]

        with _bars(console, folder.name) as show_progress:
            return evaluate(cell, folder, source, measured.unsafe_code, show_progress)

    summaries = {}
    # Each model is loaded once: its runs come one after the other.
    for folder in sorted(cells, key=lambda each: models.index(points[each][1])):
        try:
            summaries[folder] = write_summary(folder, run(cells[folder], folder))
        except KeyboardInterrupt:
            console.print(f"rho-eos: interrupted; {CONTINUE}")
            return 130
    table = summary_table([(folder.absolute().name, summaries[folder]) for folder in cells])
    if sweep is not None:
        table.write(out / "table")
        write_tidy(out / TIDY, cells)
    show(table, "terminal")
    for folder, cell in cells.items():
        if cell.engine is None:
            for sentence in wrong_references(read_samples(folder)):
                console.print(f"rho-eos: {sentence}", markup=False, soft_wrap=True)
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
