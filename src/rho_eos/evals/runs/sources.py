"""Where the answers of an evaluation come from: a model on this machine, or the references.

An `AnswerSource` is the whole seam: whatever turns jobs into answers, in any order, as they finish,
can be evaluated. It need not know about tasks, grading, files or resuming.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rho_eos.bulk import Request, decode_all
from rho_eos.decoding.params import DecodeParams
from rho_eos.errors import UserError
from rho_eos.evals.task import Sample, Task
from rho_eos.llm import LLM
from rho_eos.outputs import Output
from rho_eos.preparation import Preparer


@dataclass(frozen=True, slots=True)
class Job:
    """One sample asked once. `params` is None where no model is asked."""

    id: str
    task: Task
    sample: Sample
    repeat: int
    params: DecodeParams | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a job: the text, how it ended, and what it cost."""

    id: str
    text: str
    finish_reason: str
    usage: dict[str, Any] = field(default_factory=dict)
    trace: list[dict[str, Any]] = field(default_factory=list)


Answers = Generator[Answer, None, None]  # closing it takes back what was not answered yet


class AnswerSource(Protocol):
    def answers(self, jobs: Sequence[Job]) -> Answers:
        """An answer for every job, in any order, as they finish."""
        ...


class GoldAnswers:
    """The reference answers: what a perfect model would say, to test the graders with."""

    def answers(self, jobs: Sequence[Job]) -> Answers:
        for job in jobs:
            yield Answer(job.id, job.task.gold(job.sample), "gold")


class EngineAnswers:
    """A model in this process."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm

    def answers(self, jobs: Sequence[Job]) -> Answers:
        requests = [request_of(self.llm, job) for job in jobs]  # all are checked before any runs
        for output in decode_all(self.llm, iter(requests)):
            yield answer_of(output)


def request_of(preparer: LLM | Preparer, job: Job) -> Request:
    """A job as any engine takes it."""
    assert job.params is not None
    messages = {"messages": job.task.messages(job.sample)}
    prefix = job.task.answer_prefix
    try:
        return Request(job.id, *preparer.prepare(messages, job.params, answer_prefix=prefix))
    except UserError as error:
        raise UserError(f"{job.sample.id}: {error}") from error


def answer_of(output: Output) -> Answer:
    return Answer(
        output.id,
        output.text,
        output.finish_reason.value,
        output.usage.as_dict(),
        [record.as_dict() for record in output.trace],
    )
