"""Benchmarks: load them, ask a model, grade its answers."""

from rho_eos.evals.gsm8k import Gsm8k
from rho_eos.evals.humaneval import HumanEval
from rho_eos.evals.math500 import Math500
from rho_eos.evals.mbpp import Mbpp
from rho_eos.evals.task import Grade, Sample, Task, find_task, register, task_names
from rho_eos.evals.tiny_tasks import TinyGsm, TinyHumanEval, TinyMath, TinyMbpp

register(Gsm8k(), Math500(), Mbpp(), HumanEval())
register(TinyGsm(), TinyMath(), TinyMbpp(), TinyHumanEval())

__all__ = ["Grade", "Sample", "Task", "find_task", "register", "task_names"]
