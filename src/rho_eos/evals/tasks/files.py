"""The rows of a benchmark's file: one that cannot be read is an error, since samples would lack."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.files.rows import read_rows

Rows = Iterator[tuple[str, Any]]


def file_rows(path: Path) -> Rows:
    """Each row's place, as file:line, and its content."""
    for row in read_rows(path):
        if isinstance(row.content, UserError):
            raise row.content
        yield row.where, row.content
