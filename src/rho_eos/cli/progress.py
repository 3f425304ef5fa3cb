"""Progress of long work: done of total, a note such as tokens per second, time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress_bars(console: Console) -> Progress:
    """Live bars on a terminal; without one nothing is drawn and the log stays readable.

    A task takes a `note`, shown between its count and the time left.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


class BulkProgress:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("generating", total=total, note="")

    def advance(self, tokens_per_second: float | None = None, by: int = 1) -> None:
        if tokens_per_second is not None:
            self._progress.update(self._task, note=f"{tokens_per_second:,.0f} tokens/s")
        self._progress.advance(self._task, by)


@contextmanager
def bulk_progress(console: Console, total: int) -> Iterator[BulkProgress]:
    with progress_bars(console) as progress:
        yield BulkProgress(progress, total)
