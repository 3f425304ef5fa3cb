"""The layers of the package: a module imports its own room and those below it, never one above."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import rho_eos

PACKAGE = Path(rho_eos.__file__).parent
SOURCES = PACKAGE.parent
#: From the lowest to the highest, as CONTRIBUTING.md has them; rooms between two signs do not know
#: each other.
CONTRACT = (SOURCES.parent / "CONTRIBUTING.md").read_text().partition("\n    base <")[2]
LINES = f"base <{CONTRACT}".partition("\n\n")[0].split("<")
LAYERS = [rooms.replace(",", " ").split() for rooms in LINES]
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
#: Folders, and what no file of them may import.
FORBIDDEN = {
    "rho_eos/evals/graders": ("rho_eos.evals.tasks", "rho_eos.evals.runs"),
    "rho_eos/evals/tasks": ("rho_eos.evals.runs",),
    "rho_problems": ("rho_eos",),
    "rho_sandbox": ("rho_eos",),
}


def imported(file: Path) -> set[str]:
    """Every module that a file imports, wherever in it; public names count as their home."""
    found: set[str] = set()
    home = {name: module for module, names in rho_eos._HOME.items() for name in names}
    package = list(file.relative_to(SOURCES).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            if module == "rho_eos":
                found |= {f"rho_eos.{home.get(name.name, name.name)}" for name in node.names}
            else:
                found |= {module, *(f"{module}.{name.name}" for name in node.names)}
    return found


def room_of(module: str) -> str | None:
    """The room a module of this package lies in; None: it is another package, or the root."""
    parts = module.split(".")
    return parts[1] if parts[0] == "rho_eos" and len(parts) > 1 and parts[1] in HEIGHT else None


def rooms() -> list[str]:
    entries = [path for path in PACKAGE.iterdir() if not path.name.startswith("__")]
    return sorted(path.stem for path in entries if path.is_dir() or path.suffix == ".py")


def files_of(room: str) -> list[Path]:
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def test_every_room_has_its_layer() -> None:
    assert set(rooms()) == set(HEIGHT)


def strays(files: list[Path], forbidden: Callable[[str], bool]) -> list[str]:
    assert files
    return [
        f"{file.relative_to(SOURCES)} imports {name}"
        for file in files
        for name in sorted(imported(file))
        if forbidden(name)
    ]


@pytest.mark.parametrize("room", sorted(HEIGHT))
def test_imports_point_downwards(room: str) -> None:
    def is_not_below(name: str) -> bool:
        other = room_of(name)
        return other not in (None, room) and HEIGHT[other] >= HEIGHT[room]

    assert strays(files_of(room), is_not_below) == []


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_what_must_not_know_its_users_does_not(folder: str) -> None:
    files = sorted((SOURCES / folder).rglob("*.py"))
    assert strays(files, lambda name: name.startswith(FORBIDDEN[folder])) == []


def test_helpers_of_tests_are_not_imported_from_tests() -> None:
    found = [
        f"{file.name} imports {node.module}"
        for file in sorted(Path(__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and ".test_" in f".{node.module}"
    ]
    assert found == []


def test_one_file_calls_the_sandbox() -> None:
    """The others name its types only, so its errors become `UserError`s in one place."""
    callers = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        for name in imported(file)
        if name.startswith("rho_sandbox.") and name.rpartition(".")[2].islower()
    }
    assert callers == {"evals/graders/python_tests.py"}


def test_the_scan_sees_lazy_imports_and_public_names() -> None:
    seen = imported(PACKAGE / "views" / "announced.py")
    assert {"rho_eos.llm", "rho_eos.embedded.scope"} <= seen
