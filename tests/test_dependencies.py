"""What the package imports is what it declares: an environment without the extras of its
developers must be able to run it."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

DISTRIBUTIONS = packages_distributions()  # by the modules that they bring


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


CORE = names(PROJECT["dependencies"])
OPTIONAL = set[str]().union(*(names(EXTRAS[name]) for name in EXTRAS if name != "dev"))


def imported(statements: list[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0:
            yield str(statement.module).partition(".")[0]


def undeclared(file: Path, declared: set[str]) -> set[str]:
    """Third-party modules that a file imports when it is imported itself."""
    modules = set(imported(ast.parse(file.read_text()).body)) - {
        "rho_eos",
        "rho_sandbox",
        *sys.stdlib_module_names,
    }
    return {
        module
        for module in modules
        if not declared & {canonicalize_name(name) for name in DISTRIBUTIONS.get(module, [module])}
    }


@pytest.mark.parametrize(
    "room", ["base", "decoding", "embedded", "engine", "models", "text", "cli", "."]
)
def test_the_core_imports_its_own_dependencies_only(room: str) -> None:
    folder = ROOT / "src" / "rho_eos" / room
    files = folder.glob("*.py") if room == "." else folder.rglob("*.py")
    wrong = {str(file.relative_to(ROOT)): undeclared(file, CORE) for file in files}
    assert not {file: modules for file, modules in wrong.items() if modules}


def test_everything_else_imports_what_some_extra_declares() -> None:
    files = (ROOT / "src").rglob("*.py")
    wrong = {str(file.relative_to(ROOT)): undeclared(file, CORE | OPTIONAL) for file in files}
    assert not {file: modules for file, modules in wrong.items() if modules}
