"""The rows of a local file, each with its place: JSON Lines (also gzipped), CSV, text or Parquet.

The name tells the format. The content of a row that cannot be read is the error that says why, so
that whoever reads can go on; a file that cannot be read at all is an error.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.files.jsonl import LONGEST_LINE, check_regular, numbered, parse
from rho_eos.text.user_text import is_whole


class FileRow(NamedTuple):
    number: int  # of its line; in Parquet, of the row
    where: str
    content: Any  # a `UserError` where it cannot be read
    is_words: bool  # whether every value is text, and has yet to be read as what it means


Contents = Iterator[tuple[int, Any]]


def read_rows(path: Path) -> Iterator[FileRow]:
    check_regular(path)
    kind = path.suffix.lower()
    readers = {".csv": _csv_rows, ".parquet": _parquet_rows}
    place = f"{path} row " if kind == ".parquet" else f"{path}:"
    try:
        for number, content in readers.get(kind, _line_rows)(path):
            yield FileRow(number, f"{place}{number}", content, kind == ".csv")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {reason}") from error


def _line_rows(path: Path) -> Contents:
    kind = path.suffix.lower()
    read = _prompt if kind == ".txt" else parse
    with gzip.open(path, "rb") if kind == ".gz" else path.open("rb") as file:
        for number, raw in numbered(cast(BinaryIO, file)):
            yield number, read(raw)


def _prompt(raw: bytes) -> Any:
    """The row of a line of plain text: the object that a line of JSON would hold."""
    if len(raw) > LONGEST_LINE:
        return parse(raw)  # which says so
    try:
        return {"prompt": raw.decode("utf-8-sig").rstrip("\r\n")}
    except UnicodeDecodeError as error:
        return UserError(f"not UTF-8 text: {error.reason}")


def _csv_rows(path: Path) -> Contents:
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
                content = UserError(f"not CSV: {error}")
            if content is None:
                return
            if isinstance(content, dict):
                if None in content or None in content.values():
                    content = UserError(f"expected the {len(names)} columns of the first line")
                elif not is_whole("".join(content.values())):  # what stands in for other bytes
                    content = UserError("not UTF-8 text")
            yield reader.reader.line_num, content  # the reader's own number stays at a bad line


def _parquet_rows(path: Path) -> Contents:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise needs_extra(f"reading {path}", "pyarrow", "eval") from None
    try:
        with path.open("rb") as file:
            batches = ParquetFile(file).iter_batches()
            rows = (content for batch in batches for content in batch.to_pylist())
            yield from enumerate(rows, start=1)
    except pyarrow.ArrowException as error:
        raise UserError(f"cannot read {path} as Parquet: {error}") from error
