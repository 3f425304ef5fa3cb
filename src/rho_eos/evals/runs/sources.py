"""Where the answers of an evaluation come from: a model, or the references.

Whatever turns questions into answers, in any order, as they finish, can be evaluated. It need not
know about tasks, grading, files or resuming.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Output
from rho_eos.evals.task import Sample, Task
from rho_eos.files.jobs import Executor, Item
from rho_eos.llm import LLM
from rho_eos.text.ask import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Item):
    """One sample asked once."""

    task: Task
    sample: Sample
    repeat: int


Outputs = Generator[Output, None, None]  # closing it takes back what was not answered yet


class AnswerSource(Protocol):
    def answers(self, questions: Sequence[Question]) -> Outputs:
        """An answer for every question, in any order, as they finish."""
        ...


class GoldAnswers:
    """The reference answers: what a perfect model would say, to test the graders with."""

    def answers(self, questions: Sequence[Question]) -> Outputs:
        for each in questions:
            yield Output(each.id, each.task.gold(each.sample), FinishReason.GOLD)


class ModelAnswers:
    """A model: an `LLM` of this process, or wherever an executor has it."""

    def __init__(self, model: LLM | Executor) -> None:
        self.executor = model if isinstance(model, Executor) else Executor.of(model)

    def answers(self, questions: Sequence[Question]) -> Outputs:
        # All are checked before any of them runs.
        yield from self.executor.decode(iter([self._request(each) for each in questions]))

    def _request(self, question: Question) -> Request:
        try:
            return self.executor.request(question)
        except UserError as error:
            raise UserError(f"{question.sample.id}: {error}") from error
