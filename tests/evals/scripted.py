"""Answers without a model: right, of made-up cost, and interrupted where a test wants it."""

from collections.abc import Sequence

from rho_eos.base.outputs import FinishReason, Output, StepRecord, Usage
from rho_eos.evals.runs.evaluation import Progress
from rho_eos.evals.runs.sources import Outputs, Question
from rho_eos.evals.studies.study import Cell


class Script:
    def __init__(self, stop_after: int | None = None) -> None:
        self.left = stop_after
        self.asked: list[str] = []
        self.opened = 0

    def open(self) -> "Script":
        self.opened += 1
        return self

    def answers(self, jobs: Sequence[Question]) -> Outputs:
        for job in jobs:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left = None if self.left is None else self.left - 1
            self.asked.append(job.id)
            text = job.task.gold(job.sample)
            yield Output(job.id, text, FinishReason.STOP, usage=usage(job), trace=trace(job))


def usage(job: Question) -> Usage:
    length = job.ask["params"].initial_length
    return Usage(
        prompt_tokens=10,
        n_token=length,
        e_token=length // 2,
        nfe=3,
        positions_evaluated=3 * (10 + length),
        committed=6,
        expansions=1,
    )


def trace(job: Question) -> list[StepRecord]:
    if not job.ask["params"].trace:
        return []
    length = job.ask["params"].initial_length
    return [
        StepRecord(step, length, length, 0.25 * step, 0.25 * step, "hold", 0) for step in range(3)
    ]


class Watch:
    """Remembers the cells that were run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, cell: Cell, progress: Progress) -> None:
        if cell.folder.name not in self.ran:
            self.ran.append(cell.folder.name)
