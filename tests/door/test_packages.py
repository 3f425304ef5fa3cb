"""`make test` on a fresh machine: what is installed, where it may be, and what is said elsewhere.

The machine is a folder of programs, the only one on PATH: a false apt-get, sudo and id, which note
how they are called.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "packages"
SHELL = shutil.which("sh") or "/bin/sh"
NEEDED = {
    "bwrap": "bubblewrap",
    "chromium": "chromium",
    "systemd-analyze": "systemd",
    "g++": "g++",
}


class Machine:
    """Some of the programs that tests need, and a user who may or may not install the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"

    def add(self, name: str, script: str = "exit 0") -> None:
        program = self.folder / name
        program.write_text(f"#!{SHELL}\n{script}\n")
        program.chmod(0o755)

    def apt(self, refused: str = "nothing") -> None:
        note = f'echo "$@" >> {self.calls}'
        self.add("apt-get", f'{note}\ncase "$*" in *{refused}*) exit 100;; esac')

    def prepare(self) -> str:
        """Run the script; it never fails. Returns what it says."""
        done = subprocess.run(
            [SHELL, SCRIPT],
            env={"PATH": str(self.folder), "PYTHON": sys.executable},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def installed(self) -> set[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        return {line.split()[-1] for line in lines if line.startswith("install ")}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("user", "apt", "sudo", "there", "installed"),
    [
        (0, True, False, set(NEEDED), set()),
        (0, True, False, {"chromium"}, {"bubblewrap", "g++", "systemd"}),
        (1000, True, True, set(), set(NEEDED.values())),  # a sudo that asks for no password
        (1000, True, False, set(), set()),
        (0, False, False, set(), set()),
    ],
)
def test_what_is_missing_is_installed_where_it_may_be_and_named(
    machine: Machine, user: int, apt: bool, sudo: bool, there: set[str], installed: set[str]
) -> None:
    machine.add("id", f"echo {user}")
    machine.add("sudo", 'shift\n"$@"' if sudo else "exit 1")
    for program in {"true", *there}:
        machine.add(program)
    if apt:
        machine.apt()
    said = machine.prepare()
    assert machine.installed == installed
    assert all((package in said) == (name not in there) for name, package in NEEDED.items())
    assert machine.calls.exists() == bool(installed) and (said == "") == (there == set(NEEDED))


def test_what_cannot_be_had_keeps_nothing_else_away(machine: Machine) -> None:
    machine.add("id", "echo 0")
    machine.apt(refused="chromium")
    assert "could not install chromium" in machine.prepare()
    assert machine.installed == set(NEEDED.values())  # all were tried
