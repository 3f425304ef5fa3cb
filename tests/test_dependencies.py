"""What the package imports is what it declares: an environment without the extras of its
developers must be able to run it."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
DISTRIBUTIONS = packages_distributions()  # by the modules that they bring
#: Adapters to packages that cannot be installed beside ours, as their requirements stand.
NOT_BESIDE_OURS = {"trainers/verl.py": {"verl", "tensordict"}}
OURS = {"rho_eos", "rho_problems", "rho_sandbox"}


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


CORE = names(PROJECT["dependencies"])
OPTIONAL = set[str]().union(*(names(EXTRAS[name]) for name in EXTRAS if name != "dev"))
#: Rooms that need an extra. Everything else must do with the dependencies.
NEED_EXTRA = {"server", "evals", "lm_eval", "reproduce", "cluster", "trainers"}


def undeclared(file: Path, declared: set[str]) -> set[str]:
    """Third-party modules that a file imports when it is imported itself."""
    found = set[str]()
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0:
            found.add(str(statement.module).partition(".")[0])
    found -= OURS | sys.stdlib_module_names
    bring = {module: DISTRIBUTIONS.get(module, [module]) for module in found}
    return {module for module in found if not declared & {*map(canonicalize_name, bring[module])}}


@pytest.mark.parametrize(
    ("package", "left_out", "declared"),
    [
        ("rho_eos", NEED_EXTRA, CORE),
        ("rho_eos", set(), CORE | OPTIONAL),
        ("rho_problems", set(), CORE),
        ("rho_sandbox", set(), set()),
    ],
    ids=["core", "extras", "problems", "sandbox"],
)
def test_what_is_imported_is_declared(package: str, left_out: set[str], declared: set[str]) -> None:
    folder = ROOT / "src" / package
    files = [f for f in folder.rglob("*.py") if f.relative_to(folder).parts[0] not in left_out]
    found = {str(file.relative_to(folder)): undeclared(file, declared) for file in files}
    found = {file: found[file] - NOT_BESIDE_OURS.get(file, set()) for file in found}
    assert files and not {file: modules for file, modules in found.items() if modules}
