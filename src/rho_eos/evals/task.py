"""What a benchmark is: samples, a prompt for each, and a verdict on each answer.

Everything that runs evaluations works through this class, whoever wrote the benchmark.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rho_sandbox import Backend

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


class Task(ABC):
    """A benchmark. Tasks are immutable and may be used from several threads at once.

    A simple one has a name, `load`, `prompt`, `grade` and `gold`; all else has a default.
    """

    name: str
    #: What the answer is made to begin with: part of the model's input, not of its text.
    answer_prefix: str = ""
    #: Whether `--data` can give it a file.
    reads_file: bool = False
    #: Whether grading runs what the model wrote; then `confined` says where.
    runs_code: bool = False

    @abstractmethod
    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        """All samples, or at least the first `limit`: of the file at `path`, or of its own."""

    @abstractmethod
    def prompt(self, sample: Sample) -> str:
        """The question, as one user message; `answer_prefix` follows it."""

    @abstractmethod
    def grade(self, sample: Sample, text: str) -> Grade:
        """The verdict on the model's text, with or without the prefix."""

    @abstractmethod
    def gold(self, sample: Sample) -> str:
        """The reference answer as a model would give it, after the prefix."""

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        """The chat that asks for the answer: one turn, as the published protocol has no system."""
        return [{"role": "user", "content": self.prompt(sample)}]

    def confined(self, _backend: "Backend") -> Self:
        """The same task, whose code runs in this sandbox."""
        return self

    def identity(self) -> dict[str, Any]:
        """What decides its questions and verdicts beside its name; noted with every run of it.

        A run whose task now says something else is not continued.
        """
        return {}
