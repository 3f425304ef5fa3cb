"""Every task by its name: our own, those of installed packages, and those a program registers.

A package adds its tasks with an entry point of the group `rho_eos.tasks`, which names a module
that calls `register_task`, or the task itself. Nothing of all this is imported before the first
task is looked up.
"""

from typing import TypeVar

from rho_eos.base.errors import UserError
from rho_eos.base.registry import Registry
from rho_eos.evals.task import Task

Registered = TypeVar("Registered", bound=Task | type[Task])


def register_task(task: Registered) -> Registered:
    """Make a task known by its name. Of a class, which this may decorate, one is made."""
    made = task() if isinstance(task, type) else task
    if not isinstance(made, Task):
        raise UserError(f"{made!r} is no task: it must be a rho_eos.evals.Task")
    registry.add(getattr(made, "name", None), made, type(made).__module__)
    return task


registry = Registry[Task]("task", "rho_eos.evals.tasks", "rho_eos.tasks", register_task)


def task_names() -> list[str]:
    return list(registry.all())


def find_task(name: str) -> Task:
    return registry.find(name)
