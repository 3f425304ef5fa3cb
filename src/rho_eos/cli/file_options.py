"""The options of commands that answer a file of requests, and how such a command runs."""

import time
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rho_eos.base.errors import UserError

if TYPE_CHECKING:
    from rho_eos.files.file_job import FileJob, Report

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="With --output: forget what the file holds.")
]
InOrder = Annotated[
    bool,
    typer.Option(
        "--in-order", help="With --output: once all is done, put it in the order of the input."
    ),
]


def check_distinct(files: Mapping[str, Path | None]) -> None:
    """No file is read and written at once, whatever it is called."""
    for (one, first), (other, second) in combinations(files.items(), 2):
        if first is not None and second is not None and _same(first, second):
            raise UserError(f"{one} and {other} are the same file, {second}")


def _same(first: Path, second: Path) -> bool:
    if first.exists() and second.exists():
        return first.samefile(second)
    return first.resolve() == second.resolve()


def run_job(
    job: "FileJob",
    source: Path,
    target: Path,
    overwrite: bool,
    in_order: bool,
    verb: str,
) -> int:
    """Run a job with a progress bar and say what came of it; the command's exit code."""
    from rich.console import Console

    from rho_eos.cli.progress import progress_bars
    from rho_eos.files.file_job import run_file

    console = Console(stderr=True)
    started = 0.0

    def complain(message: str) -> None:
        console.print(f"rho-eos: {message}", markup=False, highlight=False, soft_wrap=True)

    with progress_bars(console) as bars:
        bar = bars.add_task("generating", total=None, note="")

        def show(report: "Report") -> None:
            nonlocal started
            started = started or time.perf_counter()
            done = report.before + report.made + report.failed + report.bad
            speed = report.tokens / max(time.perf_counter() - started, 1e-9)
            note = f"{speed:,.0f} tokens/s" if report.tokens else ""
            bars.update(bar, total=report.total, completed=done, note=note)

        options = {"overwrite": overwrite, "in_order": in_order}
        report = run_file(job, source, target, **options, show=show, complain=complain)
    if report.interrupted:
        done = report.before + report.made + report.failed
        console.print(
            f"rho-eos: interrupted with {done} of {report.total} done; "
            "run the same command again to continue"
        )
        return 130
    counts = {
        "were there already": report.before,
        "failed": report.failed,
        "bad": report.bad,
    }
    more = "".join(f", {count} {what}" for what, count in counts.items() if count)
    console.print(f"{report.made} {verb}{more} → {target}", highlight=False)
    return 2 if report.bad or report.failed else 0
