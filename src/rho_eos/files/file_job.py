"""Jobs from file to file: the rows of one file in, a line of another for each.

`generate --input` and `batch` are such jobs. A row that cannot be answered is named, and the others
go on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rho_eos.base.errors import UserError
from rho_eos.engine.errors import EngineError
from rho_eos.files.jobs import Answers, Item, run
from rho_eos.files.jsonl import Line, ResultFile
from rho_eos.files.rows import FileRow, read_rows

_LONGEST_COMPLAINT = 1000
Complain = Callable[[str], None]
Answer = Callable[[Iterator[Item]], Answers]


@dataclass(slots=True)
class Report:
    """How far a job is, in lines."""

    total: int
    before: int = 0  # answered by an earlier run
    made: int = 0
    failed: int = 0  # they have a line that says so
    bad: int = 0  # they have none
    tokens: int = 0
    interrupted: bool = False

    @property
    def done(self) -> int:
        return self.before + self.made + self.failed


class FileJob(ABC):
    """What the rows of a file mean, who answers them, and what the lines of the results say."""

    marker: ClassVar[bytes]  # how every line of the results begins
    key: ClassVar[str] = "id"  # the field of such a line that holds its id

    @abstractmethod
    def read(self, row: FileRow) -> Sequence[Item]:
        """The items that a row, a JSON object, asks for; a `UserError` says why it is none."""

    @abstractmethod
    def difference(self, item: Item, line: Line) -> str:
        """How a line of the results was made from something else than the item, in words; or
        empty."""

    @abstractmethod
    def open(self, results: ResultFile, until_the_end: ExitStack) -> Answer:
        """Load what answers items. It is called once the results are known to belong to the
        input."""

    @abstractmethod
    def line(self, item: Item, answer: Any) -> Line:
        """What the results will say of an answer, called just before they do."""

    def succeeded(self, _line: Line) -> bool:
        """Whether a line is an answer; else it says why there is none."""
        return True

    def items(self, path: Path, complain: Complain = lambda _: None) -> Iterator[Item]:
        """Every item of a file. Rows that are none are complained of."""
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
                complain(_complaint(row.where, error))
                continue
            seen.update(item.id for item in items)
            yield from items


def run_file(
    job: FileJob,
    source: Path,
    target: Path,
    overwrite: bool = False,
    in_order: bool = False,
    show: Callable[[Report], None] = lambda _: None,
    complain: Complain = lambda _: None,
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
    report = Report(sum(1 for _ in job.items(source, bad.append)) + len(bad))

    def tell(message: str) -> None:
        report.bad += 1
        complain(message)
        show(report)

    def finish(item: Item, answer: Any) -> None:
        if isinstance(answer, Exception):
            tell(_complaint(item.where, answer))
            return
        line = job.line(item, answer)
        results.append(line)
        report.tokens += line.get("e_token", 0)
        report.made += job.succeeded(line)
        report.failed += not job.succeeded(line)
        show(report)

    with ExitStack() as files:
        results = files.enter_context(
            ResultFile(target, marker=job.marker, key=job.key, overwrite=overwrite)
        )
        _check_continues(job, source, results)
        # All is known to fit together; only now is a model loaded, and a file changed.
        answer = job.open(results, files)
        results.repair()
        report.before = len(results.ids)
        show(report)
        try:
            run(job.items(source, tell), results.ids, answer, finish)
        except KeyboardInterrupt:
            report.interrupted = True
            return report
        if in_order:
            results.put_in_order(item.id for item in job.items(source))
    return report


def _check_continues(job: FileJob, source: Path, results: ResultFile) -> None:
    """Answers to other questions, or of other settings, are no answers to these."""
    for item in job.items(source) if results.ids else ():
        known = item.id in results.ids
        difference = job.difference(item, results.line(item.id)) if known else ""
        if difference:
            raise UserError(
                f"{results.path} holds an answer to {item.id!r} {difference}: give another "
                "--output, the same input and settings, or --overwrite"
            )


def _complaint(where: str, error: Exception) -> str:
    """The place of a row and what is wrong with it, in one line, whatever it led to."""
    said = isinstance(error, UserError | EngineError)
    text = " ".join((str(error) if said else f"{type(error).__name__}: {error}").split())
    text = text if len(text) <= _LONGEST_COMPLAINT else text[:_LONGEST_COMPLAINT] + "…"
    return f"{where}: {text}"
