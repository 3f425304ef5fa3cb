"""What a benchmark is, and every benchmark by its name.

A benchmark has samples, a prompt for each, and a verdict on each answer. Everything that runs
evaluations works through `Task`, whoever wrote the benchmark. An installed package adds its tasks
with an entry point of the group `rho_eos.tasks`, which names a module that calls `register_task`,
or the task itself. Nothing of all this is imported before the first task is looked up.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rho_eos.base.errors import UserError
from rho_eos.base.registry import Registry
from rho_eos.base.settings import Settings, setting


@dataclass(frozen=True, slots=True)
class Sample:
    """One item of a benchmark. The id is the same in every run, on every machine."""

    id: str
    data: Mapping[str, Any]


class Selection(Settings):
    """Which samples of a task are asked, and how often."""

    limit: int | None = setting(None, "only so many samples of each task", ge=1)
    skip: int = setting(0, "leave out so many samples of each task first", ge=0)
    repeats: int = setting(1, "ask everything so many times", ge=1)
    shuffle_seed: int | None = setting(None, "take samples at random, not the first ones", ge=0)


@dataclass(frozen=True, slots=True)
class Grade:
    """The verdict on one answer: what was found in it, and why it is right or wrong.

    A score from 0 to 1 may stand beside that, where an answer can be partly right.
    """

    correct: bool
    extracted: str | None
    detail: str
    score: float | None = None

    def __post_init__(self) -> None:
        if self.score is not None and not 0 <= self.score <= 1:  # so is NaN refused
            raise UserError.of("score", self.score, "a number from 0 to 1, or None")


class Task(ABC):
    """A benchmark. Tasks do not change, so several threads may use one at once.

    A simple task has a name, `load`, `prompt`, `grade` and `gold`; all else has a default. One that
    has `messages` or `ask` needs no `prompt`.
    """

    name: str
    #: What the answer is made to begin with: part of the model's input, not of its text.
    answer_prefix: str = ""
    #: Whether `--data` can give it a file.
    reads_file: bool = False
    #: Whether grading runs what the model wrote; then a sandbox is looked for first.
    runs_code: bool = False

    @abstractmethod
    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        """All samples, or at least the first `limit`: of the file at `path`, or of its own."""

    def prompt(self, sample: Sample) -> str:
        """The question, as one user message; `answer_prefix` follows it."""
        raise UserError(f"the task {self.name} has no prompt for {sample.id}")

    @abstractmethod
    def grade(self, sample: Sample, text: str) -> Grade:
        """The verdict on the model's text, with or without the prefix."""

    @abstractmethod
    def gold(self, sample: Sample) -> str:
        """The reference answer as a model would give it, after the prefix."""

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        """The chat that asks for the answer: one turn, as the published protocol has no system."""
        return [{"role": "user", "content": self.prompt(sample)}]

    def ask(self, sample: Sample) -> dict[str, Any]:
        """What is asked for a sample: the fields of `rho_eos.text.ask.Ask`.

        A task that overrides it may give a `suffix` or a `template` to fill, and under `params`
        decoding parameters of this sample, which beat those of the run.
        """
        return {
            "prompt": {"messages": self.messages(sample)},
            "answer_prefix": self.answer_prefix,
        }

    def identity(self) -> dict[str, Any]:
        """What decides its questions and verdicts beside its name; noted with every run of it.

        A run whose task now says something else is not continued.
        """
        return {}


Registered = TypeVar("Registered", bound=Task | type[Task])


def register_task(task: Registered) -> Registered:
    """Make a task known by its name. Of a class, which this may decorate, one is made."""
    made = task() if isinstance(task, type) else task
    if not isinstance(made, Task):
        raise UserError(f"{made!r} is no task: it must be a rho_eos.evals.Task")
    TASKS.add(getattr(made, "name", None), made, type(made).__module__)
    return task


TASKS = Registry[Task]("task", "rho_eos.evals.tasks", "rho_eos.tasks", register_task)


def task_names() -> list[str]:
    return list(TASKS.all())


def find_task(name: str) -> Task:
    return TASKS.find(name)
