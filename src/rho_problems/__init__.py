"""Generators of the problems that the embedded models were taught: four tasks, by name.

They imitate GSM8K, MATH500, MBPP and HumanEval in a small language of numbered steps.
"""

from rho_problems.arithmetic import TinyMath
from rho_problems.gsm import TinyGsm
from rho_problems.problem import Problem, Task
from rho_problems.programs import TinyHumanEval, TinyMbpp

__all__ = ["TASKS", "Problem", "Task", "held_out"]

TASKS: dict[str, Task] = {
    task.name: task for task in (TinyGsm(), TinyMath(), TinyMbpp(), TinyHumanEval())
}


def held_out(task: str, n: int) -> list[Problem]:
    """The first n test problems of a task, none of whose answers occurs in training."""
    if task not in TASKS:
        raise ValueError(f"unknown tiny task {task!r}, expected one of {', '.join(TASKS)}")
    return [TASKS[task].problem(seed, split="test") for seed in range(n)]
