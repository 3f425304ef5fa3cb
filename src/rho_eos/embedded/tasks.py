"""The four tasks of the embedded models, in the image of GSM8K, MATH500, MBPP and HumanEval."""

from rho_eos.base.errors import UserError
from rho_eos.embedded.arithmetic import TinyMath
from rho_eos.embedded.gsm import TinyGsm
from rho_eos.embedded.problem import Problem, Task
from rho_eos.embedded.programs import TinyHumanEval, TinyMbpp

__all__ = ["TASKS", "Problem", "Task", "held_out"]

TASKS: dict[str, Task] = {
    task.name: task for task in (TinyGsm(), TinyMath(), TinyMbpp(), TinyHumanEval())
}


def held_out(task: str, n: int) -> list[Problem]:
    """The first n test problems of a task, none of whose answers occurs in training."""
    if task not in TASKS:
        raise UserError(f"unknown tiny task {task!r}, expected one of {', '.join(TASKS)}")
    return [TASKS[task].problem(seed, split="test") for seed in range(n)]
