"""How commands get from what they were given to a model, and what they show while it works."""

import time
from collections.abc import Callable, Iterator
from itertools import combinations
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.config import EngineConfig
from rho_eos.engine.params import ScoreParams
from rho_eos.views import announced

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from rho_eos.engine.likelihood import Score
    from rho_eos.files.file_job import FileJob, Report
    from rho_eos.files.jobs import Executor
    from rho_eos.llm import LLM
    from rho_eos.models.loading import Checkpoint
    from rho_eos.text.ask import Ask, Request

CONTINUE = "run the same command again to continue"


def load(config: EngineConfig, checkpoint: "Checkpoint | None" = None) -> "LLM":
    """Load a model, and say on which device and in which precision it runs."""
    return announced.load(options_of(config), checkpoint)


def options_of(config: EngineConfig) -> dict[str, Any]:
    """The settings that were given, as a mapping for another process or class to check again."""
    return config.model_dump(exclude_unset=True)


def prepared(config: EngineConfig, ask: "Ask") -> "tuple[list[Request], Callable[[], LLM]]":
    """The requests of an ask, and what loads the model for them: what is wrong with an ask is said
    before weights are loaded."""
    from rho_eos.models.loading import open_checkpoint
    from rho_eos.text.preparation import Preparer

    checkpoint = open_checkpoint(config)

    def loaded() -> "LLM":
        llm = load(config, checkpoint)
        announced.remark_on(config.model, ask.prompt, beside=ask.suffix or ask.template)
        return llm

    return Preparer(checkpoint, config).prepare(ask), loaded


def prepared_scores(
    config: EngineConfig, items: "list[Any]", how: ScoreParams, raw: bool
) -> "Iterator[Score]":
    """Scores as they are finished; what is wrong with an item is said before weights are loaded."""
    from rho_eos.models.loading import open_checkpoint
    from rho_eos.text.pairs import as_pairs, refuse_blocks
    from rho_eos.text.preparation import Preparer

    checkpoint = open_checkpoint(config)
    refuse_blocks(checkpoint.blocks, how.method)
    pairs = as_pairs(Preparer(checkpoint, config), items, raw)
    llm = load(config, checkpoint)
    return llm.score_pairs(pairs, how, llm.engine.between_steps)


def open_executor(address: str | None, actors: int | None, config: EngineConfig) -> "Executor":
    """Who decodes: the model in this process or, with an address, a pool on a Ray cluster."""
    from rho_eos.files.jobs import Executor

    if address is None:
        if actors is not None:
            raise UserError("--ray-actors goes with --ray")
        return Executor.of(load(config))
    try:
        from rho_eos.cluster.ray_data import open_pool
    except ModuleNotFoundError as error:
        raise needs_extra("--ray", error.name, "ray") from error
    return open_pool(address, actors, options_of(config)).executor


def check_distinct(files: dict[str, Path | None]) -> None:
    """Refuse a command in which one file, by whatever names, would be both read and written."""
    for (one, first), (other, second) in combinations(files.items(), 2):
        if first is None or second is None:
            continue
        # Not `Path.resolve`, which raises where links lead in a circle.
        both = first.exists() and second.exists()
        if first.samefile(second) if both else realpath(first) == realpath(second):
            raise UserError(f"{one} and {other} are the same file, {second}")


def run_job(
    job: "FileJob", source: Path, target: Path, overwrite: bool, in_order: bool, verb: str
) -> int:
    """Run a job from file to file with a progress bar, and say what came of it.

    Returns:
        The exit code: 2 if any line was bad; the good ones have run all the same.
    """
    from rich.console import Console

    from rho_eos.files.file_job import run_file

    console = Console(stderr=True, highlight=False)
    started = 0.0

    def complain(message: str) -> None:
        console.print(f"rho-eos: {message}", markup=False, soft_wrap=True)

    with progress_bars(console) as bars:
        bar = bars.add_task("generating", total=None, note="")

        def show(report: "Report") -> None:
            nonlocal started
            started = started or time.perf_counter()
            speed = report.tokens / max(time.perf_counter() - started, 1e-9)
            note = f"{speed:,.0f} tokens/s" if report.tokens else ""
            done = report.done + report.bad
            bars.update(bar, total=report.total, completed=done, note=note)

        report = run_file(job, source, target, overwrite, in_order, show, complain)
    if report.interrupted:
        complain(f"interrupted with {report.done} of {report.total} done; {CONTINUE}")
        return 130
    counts = {"were there already": report.before, "failed": report.failed, "bad": report.bad}
    more = "".join(f", {count} {what}" for what, count in counts.items() if count)
    console.print(f"{report.made} {verb}{more} → {target}")
    return 2 if report.bad or report.failed else 0


def progress_bars(console: "Console") -> "Progress":
    """Live bars on a terminal; without one nothing is drawn and the log stays readable.

    A task takes a `note`, shown between its count and the time left.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
