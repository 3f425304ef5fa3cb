"""Benchmarks: load them, ask a model, grade its answers.

`evaluate` and what belongs to it are imported when they are first used, so that a task of your own
costs nothing more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rho_eos.evals.task import Grade, Sample, Selection, Task, find_task, register_task, task_names

if TYPE_CHECKING:
    from rho_eos.evals.runs.evaluation import Evaluation as Evaluation
    from rho_eos.evals.runs.evaluation import evaluate as evaluate
    from rho_eos.evals.runs.report import summarise as summarise
    from rho_eos.evals.runs.sources import GoldAnswers as GoldAnswers
    from rho_eos.evals.runs.sources import ModelAnswers as ModelAnswers

_HOME = {
    "Evaluation": "evaluation",
    "evaluate": "evaluation",
    "summarise": "report",
    "GoldAnswers": "sources",
    "ModelAnswers": "sources",
}
__all__ = [
    "Grade",
    "Sample",
    "Selection",
    "Task",
    "find_task",
    "register_task",
    "task_names",
    *_HOME,
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"rho_eos.evals.runs.{_HOME[name]}"), name)
