"""Benchmarks: load them, ask a model, grade its answers."""

from rho_eos.evals.task import Grade, Sample, Task, find_task, register_task, task_names

__all__ = ["Grade", "Sample", "Task", "find_task", "register_task", "task_names"]
