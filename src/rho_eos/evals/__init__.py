"""Benchmarks: load them, ask a model, grade its answers."""

from rho_eos.evals.registry import find_task, register_task, task_names
from rho_eos.evals.task import Grade, Sample, Task

__all__ = ["Grade", "Sample", "Task", "find_task", "register_task", "task_names"]
