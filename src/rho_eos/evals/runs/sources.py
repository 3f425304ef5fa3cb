"""Where the answers of an evaluation come from: a model on this machine, or the references.

An `AnswerSource` is the whole seam: whatever turns jobs into answers, in any order, as they finish,
can be evaluated. It need not know about tasks, grading, files or resuming.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import FinishReason, Output
from rho_eos.decoding.params import DecodeParams
from rho_eos.evals.task import Sample, Task
from rho_eos.files.bulk import decode_all
from rho_eos.llm import LLM
from rho_eos.text.ask import Ask, Request
from rho_eos.text.preparation import Preparer


@dataclass(frozen=True, slots=True)
class Job:
    """One sample asked once. `params` is None where no model is asked."""

    id: str
    task: Task
    sample: Sample
    repeat: int
    params: DecodeParams | None


Answers = Generator[Output, None, None]  # closing it takes back what was not answered yet


class AnswerSource(Protocol):
    def answers(self, jobs: Sequence[Job]) -> Answers:
        """An answer for every job, in any order, as they finish."""
        ...


class GoldAnswers:
    """The reference answers: what a perfect model would say, to test the graders with."""

    def answers(self, jobs: Sequence[Job]) -> Answers:
        for job in jobs:
            yield Output(job.id, job.task.gold(job.sample), FinishReason.GOLD)


class EngineAnswers:
    """A model in this process."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm

    def answers(self, jobs: Sequence[Job]) -> Answers:
        # All are checked before any of them runs.
        requests = [request_of(self.llm.preparer, job) for job in jobs]
        yield from decode_all(self.llm.engine, iter(requests))


def request_of(preparer: Preparer, job: Job) -> Request:
    """A job as any engine takes it."""
    assert job.params is not None
    messages = {"messages": job.task.messages(job.sample)}
    prefix = job.task.answer_prefix
    try:
        [request] = preparer.prepare(Ask(messages, job.params, id=job.id, answer_prefix=prefix))
    except UserError as error:
        raise UserError(f"{job.sample.id}: {error}") from error
    return request
