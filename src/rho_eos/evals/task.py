"""What a benchmark is: samples, a prompt for each, and a verdict on each answer.

Everything that runs evaluations works through this protocol. A new benchmark is one class with
these members and one `register` call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rho_eos.errors import UserError

ANSWER_PREFIX = "<reasoning>"


@dataclass(frozen=True, slots=True)
class Sample:
    """One item of a benchmark. The id is the same in every run, on every machine."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one answer: what was found in it, and why it is right or wrong."""

    correct: bool
    extracted: str | None
    detail: str


class Task(Protocol):
    """A benchmark. Tasks are immutable and may be used from several threads at once."""

    @property
    def name(self) -> str: ...

    @property
    def answer_prefix(self) -> str:
        """What the answer is made to begin with: part of the model's input, not of its text."""
        ...

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        """The first `limit` samples of a local file in the published format, or of the Hub."""
        ...

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        """The chat that asks for the answer; `answer_prefix` follows it."""
        ...

    def extract(self, text: str) -> str | None:
        """The part of the model's text that is graded, None if there is none."""
        ...

    def grade(self, sample: Sample, text: str) -> Grade:
        """The verdict on the model's text, with or without the prefix."""
        ...

    def gold(self, sample: Sample) -> str:
        """The reference answer as a model would give it, after the prefix."""
        ...


_tasks: dict[str, Task] = {}


def register(*tasks: Task) -> None:
    """Make tasks known by their names."""
    for task in tasks:
        if task.name in _tasks:
            raise ValueError(f"a task named {task.name!r} is registered already")
        _tasks[task.name] = task


def task_names() -> list[str]:
    return list(_tasks)


def find_task(name: str) -> Task:
    if name not in _tasks:
        raise UserError(f"unknown task {name!r}, expected one of {', '.join(_tasks)}")
    return _tasks[name]
