"""The options of commands that measure a model on tasks."""

from typing import Annotated

import typer

Limit = Annotated[int | None, typer.Option(help="Only so many samples of each task.")]
Repeats = Annotated[int, typer.Option(help="Ask everything so many times.")]
ShuffleSeed = Annotated[
    int | None, typer.Option(help="Take samples at random instead of the first ones.")
]
BatchSize = Annotated[
    int | None, typer.Option(help="Sequences per forward; the same as --max-rows.")
]
Data = Annotated[
    list[str] | None,
    typer.Option(help="A benchmark's file, PATH or TASK=PATH; without it, from the Hub."),
]
UnsafeCode = Annotated[
    bool, typer.Option("--unsafe-code", help="Run model-written code unconfined if need be.")
]
