"""Jobs from file to file: the rows of one file in, a line of another for each.

`generate --input` and `batch` are such jobs. A row that cannot be answered is named, and the others
go on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from rho_eos.base.errors import UserError
from rho_eos.engine.errors import EngineError
from rho_eos.files.jobs import Answers, Item, run
from rho_eos.files.jsonl import Line, ResultFile
from rho_eos.files.rows import FileRow, read_rows

_LONGEST_COMPLAINT = 1000


class FileItem(Item, Protocol):
    """An item that a row of a file asks for; `where` is the place of that row."""

    @property
    def where(self) -> str: ...


F = TypeVar("F", bound=FileItem)
A = TypeVar("A")


@dataclass(slots=True)
class Report:
    """How far a job from file to file is: lines of its input, and what became of them."""

    total: int = 0
    before: int = 0  # answered by an earlier run
    made: int = 0
    failed: int = 0  # with a line that says so
    bad: int = 0  # without one
    tokens: int = 0
    interrupted: bool = False


class FileJob(ABC, Generic[F, A]):
    """A job whose items are the rows of a file. Every method is called with what is its own."""

    marker: ClassVar[bytes]  # how the lines of its results begin
    key: ClassVar[str] = "id"  # where such a line has its id

    @abstractmethod
    def read(self, row: FileRow) -> Sequence[F]:
        """The items that a row asks for; a `UserError` says why it is none."""

    @abstractmethod
    def difference(self, item: F, line: Line) -> str:
        """In words, how what a line was made from differs from the item; empty: it does not."""

    @abstractmethod
    def opened(self, results: ResultFile) -> AbstractContextManager[Answers[F, A | Exception]]:
        """Load what answers. All that the results hold is known to belong to the input."""

    @abstractmethod
    def line(self, item: F, answer: A) -> Line:
        """What the results say of an answer."""

    def write(self, results: ResultFile, line: Line) -> None:
        results.append(line)

    def succeeded(self, _line: Line) -> bool:
        """Whether a line is an answer; else it says why there is none."""
        return True

    def tokens(self, _line: Line) -> int:
        """How many tokens were made, for the display of the speed."""
        return 0

    def items(self, path: Path, complain: Callable[[str], None] = lambda _: None) -> Iterator[F]:
        """Every item of a file; what is wrong with other rows is told."""
        seen: set[str] = set()
        for row in read_rows(path):
            try:
                if isinstance(row.content, UserError):
                    raise row.content
                if not isinstance(row.content, dict):
                    raise UserError("not a JSON object")
                items = self.read(row)
                for item in items:
                    if item.id in seen:
                        raise UserError(f"the {self.key} {item.id!r} was used by an earlier line")
            except Exception as error:
                complain(complaint(row.where, error))
                continue
            seen.update(item.id for item in items)
            yield from items


def run_file(
    job: FileJob[F, A],
    source: Path,
    target: Path,
    *,
    overwrite: bool = False,
    in_order: bool = False,
    show: Callable[[Report], None] = lambda _: None,
    complain: Callable[[str], None] = lambda _: None,
) -> Report:
    """Run a job from one file to another, or the rest of it.

    Args:
        job: What the rows mean and who answers them.
        source: The file that is read; nothing is written to it.
        target: The results. A file that holds anything but answers to this input is refused.
        overwrite: Forget the answers that `target` holds.
        in_order: Put the finished results in the order of the input.
        show: Called with the report before the first answer and after each.
        complain: Called with a sentence for each row that gets no line.
    """
    bad: list[str] = []
    total = sum(1 for _ in job.items(source, bad.append)) + len(bad)
    report = Report(total)

    def tell(message: str) -> None:
        report.bad += 1
        complain(message)
        show(report)

    def make(item: F, answer: A | Exception) -> Line | str:
        if isinstance(answer, Exception):
            return complaint(item.where, answer)
        return job.line(item, answer)

    def keep(_item: F, made: Line | str) -> None:
        if isinstance(made, str):
            tell(made)
            return
        report.tokens += job.tokens(made)
        succeeded = job.succeeded(made)
        job.write(results, made)
        report.made += succeeded
        report.failed += not succeeded
        show(report)

    with ResultFile(target, marker=job.marker, key=job.key, overwrite=overwrite) as results:
        _check_continues(job, source, results)
        # All is known to fit together; only now is a model loaded, and a file changed.
        with job.opened(results) as answers:
            results.repair()
            report.before = len(results.ids)
            show(report)
            try:
                run(job.items(source, tell), results.ids, answers, make, keep)
            except KeyboardInterrupt:
                report.interrupted = True
                return report
        if in_order:
            results.put_in_order(item.id for item in job.items(source))
    return report


def _check_continues(job: FileJob[F, A], source: Path, results: ResultFile) -> None:
    """Answers to other questions, or of other settings, are no answers to these."""
    for item in job.items(source) if results.ids else ():
        if item.id not in results.ids:
            continue
        difference = job.difference(item, results.line(item.id))
        if difference:
            raise UserError(
                f"{results.path} holds an answer to {item.id!r} {difference}: give another "
                "--output, the same input and settings, or --overwrite"
            )


def complaint(where: str, error: Exception) -> str:
    """The place of a row and what is wrong with it, in one line, whatever it led to."""
    said = isinstance(error, UserError | EngineError)
    text = " ".join((str(error) if said else f"{type(error).__name__}: {error}").split())
    text = text if len(text) <= _LONGEST_COMPLAINT else text[:_LONGEST_COMPLAINT] + "…"
    return f"{where}: {text}"
