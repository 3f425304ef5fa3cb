"""Benchmarks: load them, ask a model, grade its answers."""

from rho_eos.embedded import TinyGsm, TinyHumanEval, TinyMath, TinyMbpp
from rho_eos.evals.task import Grade, Sample, Task, find_task, register, task_names
from rho_eos.evals.tasks.gsm8k import Gsm8k
from rho_eos.evals.tasks.humaneval import HumanEval
from rho_eos.evals.tasks.math500 import Math500
from rho_eos.evals.tasks.mbpp import Mbpp

register(Gsm8k(), Math500(), Mbpp(), HumanEval())
register(TinyGsm(), TinyMath(), TinyMbpp(), TinyHumanEval())

__all__ = ["Grade", "Sample", "Task", "find_task", "register", "task_names"]
