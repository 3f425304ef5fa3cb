"""Things of one kind by their names: ours, those of installed packages, and those a program adds.

Policies, commit rules, caches, families and tasks are all found this way. Ours are the modules of
one package, each of which registers what it defines; nothing else names them. Other people's come
from an entry point, or from a plugin that calls the same `register`.
"""

import importlib
import inspect
import pkgutil
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar

from rho_eos.base.errors import UserError, one_of, shown
from rho_eos.base.plugins import load_entry_points

T = TypeVar("T")

#: Names are used in lists separated by commas, in options and in file names.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Registry(Generic[T]):
    """One kind of thing.

    Args:
        kind: The word for it in sentences, `policy`.
        package: The package whose modules register ours when they are imported.
        group: The group of entry points by which installed packages announce theirs.
        register: What an entry point's object is given to, where it names no module.
    """

    def __init__(
        self, kind: str, package: str, group: str, register: Callable[[Any], object]
    ) -> None:
        self.kind, self.package, self.group = kind, package, group
        self._register = register
        self._things: dict[str, T] = {}
        self._homes: dict[str, str] = {}  # the module that registered each
        self._ours_loaded = self._others_loaded = False
        self._lock = threading.RLock()  # what is being loaded registers things itself

    def add(self, name: Any, thing: T, home: str) -> None:
        """Register `thing`, which the module `home` defines. A module may replace its own."""
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise UserError(
                f"{shown(name)} is no name for a {self.kind}: use letters, digits, . _ -"
            )
        with self._lock:
            if not _is_ours(home):
                self._load(others=False)  # or it could take a name of ours
            if self._homes.get(name, home) != home:
                raise UserError(
                    f"a {self.kind} named {name!r} is registered already, by {self._homes[name]}"
                )
            self._things[name], self._homes[name] = thing, home

    def remove(self, name: str) -> None:
        """Forget the one of this name, so that another may take it."""
        del self._things[name], self._homes[name]

    def all(self) -> dict[str, T]:
        """Every one by its name: ours, in the order of their names, then those from outside."""
        self._load()
        names = sorted(self._things, key=lambda name: (self.is_foreign(name), name))
        return {name: self._things[name] for name in names}

    def find(self, name: Any) -> T:
        """The one of this name, or a sentence that lists the names there are."""
        known = self.all()
        if not isinstance(name, str) or name not in known:
            raise UserError.of(self.kind, name, one_of(known, name))
        return known[name]

    def is_foreign(self, name: str) -> bool:
        """Whether what goes by this name came from outside."""
        return not _is_ours(self._homes[name])

    def _load(self, others: bool = True) -> None:
        with self._lock:
            if not self._ours_loaded:
                self._ours_loaded = True
                ours = importlib.import_module(self.package)
                for module in pkgutil.iter_modules(ours.__path__):
                    importlib.import_module(f"{self.package}.{module.name}")
            if others and not self._others_loaded:
                self._others_loaded = True
                load_entry_points(self.group, self._register)


def _is_ours(module: str) -> bool:
    return module.startswith("rho_eos.")


@cache
def code_of(part: type) -> str | None:
    """A hash of the code that a class from outside consists of; None for ours.

    That is the file of its module or, where that lies in a package, all Python files of the
    package. Of a script or a notebook only the class counts, since the rest says what is run.
    """
    home = part.__module__
    if _is_ours(home):
        return None
    package = sys.modules.get(home.partition(".")[0])
    file = getattr(package, "__file__", None)
    digest = blake2b(digest_size=8)
    if folders := getattr(package, "__path__", None):
        for path in sorted(path for folder in folders for path in Path(folder).rglob("*.py")):
            digest.update(path.read_bytes())
    elif home != "__main__" and file is not None:
        digest.update(Path(file).read_bytes())
    else:
        for each in filter(inspect.isfunction, vars(part).values()):
            digest.update(inspect.getsource(each).encode())
    return digest.hexdigest()
