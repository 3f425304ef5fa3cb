"""Code of other people: modules, files, and packages that announce themselves.

A plugin is code that registers policies, families of models or tasks (`rho_eos.register_policy` and
the like) when it is imported. It runs with all rights of this process, so only what the user names,
or has installed, is ever imported.
"""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable
from hashlib import blake2b
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from rho_eos.base.errors import UserError

logger = logging.getLogger(__name__)


def load_plugins(names: Iterable[str]) -> None:
    """Import each: a path that ends in .py, or the name of an importable module."""
    for name in names:
        load_plugin(name)


def load_plugin(name: str) -> None:
    """Import one plugin, unless it was imported before."""
    path = Path(name).expanduser().resolve()
    if name.endswith(".py") and not path.is_file():
        raise UserError(f"plugin is {name!r}, but there is no such file")
    try:
        if name.endswith(".py"):
            _import_file(path)
        else:
            importlib.import_module(name)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise UserError(f"plugin {name!r} cannot be imported: {why}") from error


def _import_file(path: Path) -> None:
    # Two files of one name are two modules, and the same file is the same module everywhere.
    module = f"rho_eos_plugin_{path.stem}_{blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    if module in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None and spec.loader is not None
    sys.modules[module] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[module])
    except BaseException:
        del sys.modules[module]
        raise


def load_entry_points(group: str, register: Callable[[Any], object]) -> None:
    """Load what installed packages announce: a module that registers, or the thing to register.

    A package that does not work must not keep the others from working: it is a line in the log.
    """
    for entry in entry_points(group=group):
        try:
            found = entry.load()
            if not isinstance(found, ModuleType):
                register(found)
        except Exception as error:
            logger.warning(
                "rho-eos: %s of %s (%s) cannot be loaded: %s",
                group.removeprefix("rho_eos."),
                entry.dist.name if entry.dist else "an unknown package",
                entry.value,
                " ".join(f"{type(error).__name__}: {error}".split()),
            )


def absolute(names: Iterable[str]) -> tuple[str, ...]:
    """The plugins with absolute paths, for a process that runs in another folder."""
    return tuple(
        str(Path(name).expanduser().resolve()) if name.endswith(".py") else name for name in names
    )
