"""Studies and answers without a model: right unless said otherwise, interrupted on request."""

import csv
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rho_eos.base.outputs import FinishReason, Output, StepRecord, Usage
from rho_eos.config import EngineConfig
from rho_eos.evals.runs.evaluation import Progress
from rho_eos.evals.runs.sources import Outputs, Question
from rho_eos.evals.studies.study import Cell, Study
from rho_eos.evals.task import Selection


class Script:
    """Answers to the samples `wrong` are wrong; after `stop_after` answers comes a Ctrl-C."""

    def __init__(self, stop_after: int | None = None, wrong: Collection[str] = ()) -> None:
        self.left, self.wrong = stop_after, wrong
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
            yield self.output(job)

    def output(self, job: Question) -> Output:
        text = "####" if job.sample.id in self.wrong else job.task.gold(job.sample)
        params = job.ask["params"]
        length = params.initial_length if params else 8
        usage = Usage(
            prompt_tokens=10,
            n_token=length,
            e_token=length // 2,
            nfe=3,
            positions_evaluated=3 * (10 + length),
            committed=6,
            expansions=1,
        )
        trace = [
            StepRecord(step, length, length, 0.25 * step, 0.25 * step, "hold", 0)
            for step in range(3 if params and params.trace else 0)
        ]
        return Output(job.id, text, FinishReason.STOP, usage=usage, trace=trace)


class Watch:
    """Remembers the cells that were run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, cell: Cell, progress: Progress) -> None:
        if cell.folder.name not in self.ran:
            self.ran.append(cell.folder.name)


def study_of(checkpoint: Path, out: Path, **which: Any) -> Study:
    config = EngineConfig(model=str(checkpoint), device="cpu")
    return Study(config=config, folder=out, selection=Selection(**which))


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table in CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
