"""What the published benchmarks share: rows of a file or of the Hub, and a prompt template."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any, ClassVar

from rho_eos.base.errors import UserError, needs_extra
from rho_eos.evals.task import Sample, Task
from rho_eos.files.rows import read_rows

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """The form of a benchmark's data: its fields, the ids of its items, its place on the Hub."""

    fields: Mapping[str, type]
    sample_id: Callable[[int, Fields], str]
    hub_name: str = ""  # none: it is in files only
    hub_config: str | None = None
    belongs: Callable[[Fields], bool] = lambda _row: True  # to the split that is asked
    check: Callable[[Fields], None] = lambda _row: None  # raises `UserError`

    def load(self, path: Path | None, limit: int | None) -> list[Sample]:
        rows = self._hub_rows() if path is None else _file_rows(path)
        samples = list(islice(self._samples(rows), limit))
        if not samples:
            raise UserError(f"{path or self.hub_name} holds no sample of this benchmark")
        return samples

    def _samples(self, rows: Iterator[tuple[str, Any]]) -> Iterator[Sample]:
        """Every complaint about a row begins with its place."""
        seen: dict[str, str] = {}
        for index, (where, row) in enumerate(rows):
            try:
                self._check_fields(row)
                if not self.belongs(row):
                    continue
                self.check(row)
            except UserError as error:
                raise UserError(f"{where}: {error}") from None
            sample = Sample(self.sample_id(index, row), row)
            if sample.id in seen:
                raise UserError(f"{where}: {sample.id} occurs twice, first at {seen[sample.id]}")
            seen[sample.id] = where
            yield sample

    def _check_fields(self, row: Any) -> None:
        if isinstance(row, UserError):  # a row that cannot be read: it would have been a sample
            raise row
        if not isinstance(row, Mapping):
            raise UserError(f"expected a JSON object, got {type(row).__name__}")
        for field, kind in self.fields.items():
            if field not in row:
                expected = ", ".join(self.fields)
                raise UserError(f"no field {field!r}, expected the fields {expected}")
            if not isinstance(row[field], kind):
                got = type(row[field]).__name__
                raise UserError(f"the field {field!r} has the wrong type, {got}")

    def _hub_rows(self) -> Iterator[tuple[str, Any]]:
        try:
            from datasets import load_dataset
        except ImportError:
            what = f"loading {self.hub_name} from the Hub (or give a local file with --data)"
            raise needs_extra(what, "datasets", "hub-data") from None
        try:
            dataset = load_dataset(self.hub_name, self.hub_config, split="test")
        except Exception as error:  # the package raises whatever its many backends raise
            raise UserError(f"cannot load {self.hub_name} from the Hub: {error}") from error
        for index, row in enumerate(dataset):
            yield f"{self.hub_name}[{index}]", row


def _file_rows(path: Path) -> Iterator[tuple[str, Any]]:
    return ((row.where, row.content) for row in read_rows(path))


@dataclass(frozen=True)
class Published(Task):
    """A benchmark of a file or the Hub, asked by the published protocol."""

    template: str
    answer_prefix: str = "<reasoning>"

    source: ClassVar[Source]
    reads_file = True

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        return self.source.load(path, limit)


def fill(template: str, /, **fields: str) -> str:
    """A template with its fields: `$name` stands for one, `$$` for a dollar sign."""
    try:
        return Template(template).substitute(fields)
    except KeyError as error:
        known = ", ".join(f"${name}" for name in fields)
        raise UserError(f"the template asks for ${error.args[0]}, expected {known}") from None
    except ValueError as error:
        raise UserError(f"the template is not valid: {error}") from None
