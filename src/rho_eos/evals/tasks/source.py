"""Where samples come from: a local file, or a dataset of the Hub."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.evals.task import Sample
from rho_eos.files.rows import read_rows

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """The form of a benchmark's data: its fields, the ids of its items, its place on the Hub."""

    fields: Mapping[str, type | tuple[type, ...]]
    sample_id: Callable[[int, Fields], str]
    hub_name: str = ""  # none: it is in files only
    hub_config: str | None = None
    hub_split: str = "test"
    belongs: Callable[[Fields], bool] | None = None  # to the split; None: the file is the split
    check: Callable[[Fields], None] | None = None  # raises `UserError`, to which the place is added

    def load(self, path: Path | None, limit: int | None) -> list[Sample]:
        if limit is not None and limit < 1:
            raise UserError(f"limit must be at least 1, got {limit}")
        rows = self._hub_rows() if path is None else _file_rows(path)
        samples = list(islice(self._samples(rows), limit))
        if not samples:
            raise UserError(f"{path or self.hub_name} holds no sample of this benchmark")
        return samples

    def _samples(self, rows: Iterator[tuple[str, Any]]) -> Iterator[Sample]:
        seen: dict[str, str] = {}
        for index, (where, row) in enumerate(rows):
            self._check(where, row)
            if self.belongs is not None and not self.belongs(row):
                continue
            self._check_more(where, row)
            sample = Sample(self.sample_id(index, row), row)
            if sample.id in seen:
                raise UserError(f"{where}: {sample.id} occurs twice, first at {seen[sample.id]}")
            seen[sample.id] = where
            yield sample

    def _check(self, where: str, row: Any) -> None:
        if not isinstance(row, Mapping):
            raise UserError(f"{where}: expected a JSON object, got {type(row).__name__}")
        for field, kind in self.fields.items():
            if field not in row:
                expected = ", ".join(self.fields)
                raise UserError(f"{where}: no field {field!r}, expected the fields {expected}")
            if not isinstance(row[field], kind):
                got = type(row[field]).__name__
                raise UserError(f"{where}: the field {field!r} has the wrong type, {got}")

    def _check_more(self, where: str, row: Fields) -> None:
        if self.check is not None:
            try:
                self.check(row)
            except UserError as error:
                raise UserError(f"{where}: {error}") from None

    def _hub_rows(self) -> Iterator[tuple[str, Any]]:
        try:
            from datasets import load_dataset
        except ImportError:
            what = f"loading {self.hub_name} from the Hub (or give a local file with --data)"
            raise needs_extra(what, "datasets", "hub-data") from None
        try:
            dataset = load_dataset(self.hub_name, self.hub_config, split=self.hub_split)
        except Exception as error:  # the package raises whatever its many backends raise
            raise UserError(f"cannot load {self.hub_name} from the Hub: {error}") from error
        for index, row in enumerate(dataset):
            yield f"{self.hub_name}[{index}]", row


def _file_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The place and content of each row. One that cannot be read is an error: it is a sample."""
    for row in read_rows(path):
        if isinstance(row.content, UserError):
            raise UserError(f"{row.where}: {row.content}")
        yield row.where, row.content
