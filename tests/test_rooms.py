"""Rooms that must not know each other: the embedded model makes problems, evaluations grade."""

import ast
from pathlib import Path

import pytest

import rho_eos

PACKAGE = Path(rho_eos.__file__).parent


def imported(file: Path) -> set[str]:
    """Every module that a file imports, wherever in it; of `from a import b`, also a.b."""
    found: set[str] = set()
    package = ["rho_eos", *file.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{name.name}" for name in node.names)}
    return found


def room_imports(room: str) -> dict[str, set[str]]:
    return {
        str(file.relative_to(PACKAGE)): imported(file) for file in (PACKAGE / room).rglob("*.py")
    }


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        ("tiny", ("rho_eos.evals", "rho_eos.embedded")),
        ("evals", ("rho_eos.tiny", "rho_eos.embedded")),
        ("evals/sandbox", ("rho_eos.evals.tasks", "rho_eos.evals.graders", "rho_eos.evals.runs")),
        ("evals/graders", ("rho_eos.evals.tasks", "rho_eos.evals.runs")),
        ("evals/tasks", ("rho_eos.evals.runs",)),
    ],
)
def test_a_room_does_not_import_what_it_must_not_know(
    room: str, forbidden: tuple[str, ...]
) -> None:
    imports = room_imports(room)
    assert imports
    strays = [
        f"{file} imports {name}"
        for file, names in imports.items()
        for name in sorted(names)
        if any(name == other or name.startswith(f"{other}.") for other in forbidden)
    ]
    assert strays == []


def test_the_scan_sees_the_imports_that_join_the_two() -> None:
    joined = imported(PACKAGE / "embedded.py")
    assert {"rho_eos.tiny.tasks", "rho_eos.evals", "rho_eos.evals.Task"} <= joined
