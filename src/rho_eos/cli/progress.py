"""Progress of long work: done of total, a note such as tokens per second, time left."""

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
