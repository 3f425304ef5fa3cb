"""The rows of a local file, each with its place: JSON Lines (also gzipped), CSV, text or Parquet.

The name tells the format. A row that cannot be read is handed out as the complaint about it, so
that whoever reads can go on; a file that cannot be read at all is an error.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rho_eos.errors import UserError, needs_extra
from rho_eos.jsonl import check_regular, parse, raw_lines


class Row(NamedTuple):
    number: int  # of its line; in Parquet, of the row
    where: str
    content: Any  # a `UserError` where it cannot be read


Rows = Iterator[Row]


def read_rows(path: Path) -> Rows:
    check_regular(path)
    readers: dict[str, Callable[[Path], Rows]] = {
        ".csv": _csv_rows,
        ".gz": _gzip_rows,
        ".parquet": _parquet_rows,
        ".txt": _text_rows,
    }
    try:
        yield from readers.get(path.suffix.lower(), _json_rows)(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}") from error


def is_words(path: Path) -> bool:
    """Whether every value in such a file is text, whatever it means."""
    return path.suffix.lower() == ".csv"


def _json_rows(path: Path) -> Rows:
    for number, raw in raw_lines(path):
        yield _json_row(path, number, raw)


def _gzip_rows(path: Path) -> Rows:
    with gzip.open(path, "rb") as file:
        for number, raw in enumerate(file, start=1):
            if raw.strip():
                yield _json_row(path, number, raw)


def _json_row(path: Path, number: int, raw: bytes) -> Row:
    where = f"{path}:{number}"
    return Row(number, where, parse(raw, where))


def _text_rows(path: Path) -> Rows:
    """A prompt on each line."""
    for number, raw in raw_lines(path):
        where = f"{path}:{number}"
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield Row(number, where, UserError(f"{where}: not UTF-8 text: {error.reason}"))
        else:
            yield Row(number, where, {"prompt": text})


def _csv_rows(path: Path) -> Rows:
    """The first line names the fields; every value is text."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            for row in reader:
                where = f"{path}:{reader.line_num}"
                content: Any = row
                if None in row or None in row.values():
                    columns = len(reader.fieldnames or ())
                    content = UserError(
                        f"{where}: expected the {columns} columns of the first line"
                    )
                yield Row(reader.line_num, where, content)
        except (csv.Error, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path} as CSV: {error}") from error


def _parquet_rows(path: Path) -> Rows:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise needs_extra(f"reading {path}", "pyarrow", "eval") from None
    try:
        with path.open("rb") as file:
            number = 0
            for batch in ParquetFile(file).iter_batches():
                for content in batch.to_pylist():
                    number += 1
                    yield Row(number, f"{path} row {number}", content)
    except pyarrow.ArrowException as error:
        raise UserError(f"cannot read {path} as Parquet: {error}") from error
