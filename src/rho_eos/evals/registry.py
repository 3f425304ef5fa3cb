"""Every task by its name: our own, those of installed packages, and those a program registers.

A package adds its tasks with an entry point of the group `rho_eos.tasks`, which names a module
that calls `register_task`, or the task itself. Nothing of all this is imported before the first
task is looked up.
"""

import re
import threading
from importlib import import_module
from typing import TypeVar

from rho_eos.base.errors import UserError
from rho_eos.base.plugins import load_entry_points
from rho_eos.evals.task import Task

GROUP = "rho_eos.tasks"
#: Names stand in lists, in TASK=PATH and in file names.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: By name, because the second of them imports this package and the embedded model.
OWN = ("rho_eos.evals.tasks", "rho_eos.evals.tasks.embedded")

Registered = TypeVar("Registered", bound=Task | type[Task])


class Registry:
    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}
        self._own_loaded = self._installed_loaded = False
        self._lock = threading.RLock()  # what is being loaded may register tasks itself

    def register(self, task: Task) -> None:
        with self._lock:
            self._load_own()
            self._add(task)

    def tasks(self) -> dict[str, Task]:
        with self._lock:
            self._load_own()
            if not self._installed_loaded:
                self._installed_loaded = True
                load_entry_points(GROUP, register_task)
            return dict(self._tasks)

    def _load_own(self) -> None:
        if not self._own_loaded:
            self._own_loaded = True
            for module in OWN:
                for task in import_module(module).TASKS:
                    self._add(task)

    def _add(self, task: Task) -> None:
        name = getattr(task, "name", None)
        if not isinstance(task, Task):
            raise UserError(f"{task!r} is no task: it must be a rho_eos.evals.Task")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise UserError(f"{name!r} is no name for a task: use letters, digits, . _ -")
        if name in self._tasks:
            raise UserError(f"a task named {name!r} is registered already")
        self._tasks[name] = task


registry = Registry()


def register_task(task: Registered) -> Registered:
    """Make a task known by its name. Of a class, which this may decorate, one is made."""
    registry.register(task() if isinstance(task, type) else task)
    return task


def task_names() -> list[str]:
    return list(registry.tasks())


def find_task(name: str) -> Task:
    tasks = registry.tasks()
    if name not in tasks:
        raise UserError(f"unknown task {name!r}, expected one of {', '.join(tasks)}")
    return tasks[name]
