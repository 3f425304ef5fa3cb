"""The rows of a local file, each with its place: JSON Lines (also gzipped), CSV, text or Parquet.

The name tells the format. A row that cannot be read is handed out as the complaint about it, so
that whoever reads can go on; a file that cannot be read at all is an error.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.files.jsonl import LONGEST_LINE, check_regular, numbered, parse, raw_lines
from rho_eos.text.user_text import is_whole


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
        for number, raw in numbered(cast(BinaryIO, file)):
            yield _json_row(path, number, raw)


def _json_row(path: Path, number: int, raw: bytes) -> Row:
    where = f"{path}:{number}"
    return Row(number, where, parse(raw, where))


def _text_rows(path: Path) -> Rows:
    """A prompt on each line."""
    for number, raw in raw_lines(path):
        where = f"{path}:{number}"
        if len(raw) > LONGEST_LINE:
            yield Row(number, where, parse(raw, where))
            continue
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield Row(number, where, UserError(f"{where}: not UTF-8 text: {error.reason}"))
        else:
            yield Row(number, where, {"prompt": text})


def _csv_rows(path: Path) -> Rows:
    """The first line names the fields; every value is text."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            names = reader.fieldnames or ()
        except csv.Error as error:
            raise UserError(f"cannot read {path} as CSV: {error}") from error
        while True:
            content: Any
            try:
                content = next(reader, None)
            except csv.Error as error:
                content = UserError(f"{path}:{reader.reader.line_num}: not CSV: {error}")
            if content is None:
                return
            number = reader.reader.line_num  # its own number stays behind at a bad line
            where = f"{path}:{number}"
            if isinstance(content, dict):
                if None in content or None in content.values():
                    content = UserError(
                        f"{where}: expected the {len(names)} columns of the first line"
                    )
                elif not is_whole("".join(content.values())):  # what stands in for other bytes
                    content = UserError(f"{where}: not UTF-8 text")
            yield Row(number, where, content)


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
