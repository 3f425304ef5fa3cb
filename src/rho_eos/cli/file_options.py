"""The options of commands that answer a file of requests."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer

from rho_eos.base.errors import UserError

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
