"""Held-out problems of the embedded model, and how many answers to them are right.

Figures are reported on the first 200 of each task. Settings are chosen on later ones.
"""

from dataclasses import dataclass
from typing import Any

from rho_eos.evals import Sample, Task, find_task
from rho_problems import TASKS

REPORTED = 200


@dataclass(frozen=True)
class Question:
    task: Task
    sample: Sample

    @property
    def prompt(self) -> dict[str, Any]:
        return {"messages": self.task.messages(self.sample)}

    def right(self, text: str) -> bool:
        return self.task.grade(self.sample, text).correct


def questions(limit: int, first: int = 0) -> list[Question]:
    """So many of every task, the tasks in turn, starting with the problem numbered `first`."""
    tasks = [find_task(name) for name in TASKS]
    each = [task.load(limit=first + limit)[first : first + limit] for task in tasks]
    return [
        Question(task, sample)
        for group in zip(*each, strict=True)
        for task, sample in zip(tasks, group, strict=True)
    ]
