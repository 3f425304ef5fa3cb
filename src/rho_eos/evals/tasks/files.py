"""The rows of a local file, each with its place: JSON Lines (also gzipped), CSV or Parquet."""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rho_eos.errors import UserError, needs_extra

Rows = Iterator[tuple[str, Any]]


def file_rows(path: Path) -> Rows:
    """Each row's place, as file:line, and its content. The name tells the format."""
    readers = {".csv": csv_rows, ".parquet": parquet_rows}
    try:
        yield from readers.get(path.suffix.lower(), json_rows)(path)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}") from error


def json_rows(path: Path) -> Rows:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield f"{path}:{number}", parse(line, f"{path}:{number}")


def parse(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: not JSON: {error}") from error


def csv_rows(path: Path) -> Rows:
    """The first line names the fields; every value is text."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            for row in reader:
                where = f"{path}:{reader.line_num}"
                if None in row or None in row.values():
                    columns = len(reader.fieldnames or ())
                    raise UserError(f"{where}: expected the {columns} columns of the first line")
                yield where, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path} as CSV: {error}") from error


def parquet_rows(path: Path) -> Rows:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise needs_extra(f"reading {path}", "pyarrow", "eval") from None
    try:
        with path.open("rb") as file:
            number = 0
            for batch in ParquetFile(file).iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path} row {number}", row
    except pyarrow.ArrowException as error:
        raise UserError(f"cannot read {path} as Parquet: {error}") from error
