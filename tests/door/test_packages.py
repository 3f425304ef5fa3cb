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
NEEDED = {"bwrap": "bubblewrap", "chromium": "chromium", "systemd-analyze": "systemd"}


class Machine:
    """Some of the programs that tests need, and a user who may or may not install the others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"

    def add(self, name: str, script: str = "exit 0") -> None:
        program = self.folder / name
        program.write_text(f"#!{SHELL}\n{script}\n")
        program.chmod(0o755)

    def user(self, number: int) -> None:
        self.add("id", f"echo {number}")

    def apt(self, refused: str = "nothing") -> None:
        note = f'echo "$@" >> {self.calls}'
        self.add("apt-get", f'{note}\ncase "$*" in *{refused}*) exit 100;; esac')

    def sudo(self, allowed: bool) -> None:
        self.add("sudo", 'shift\n"$@"' if allowed else "exit 1")
        self.add("true")

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


def test_nothing_happens_where_all_is_there(machine: Machine) -> None:
    machine.user(0)
    machine.apt()
    for program in NEEDED:
        machine.add(program)
    assert machine.prepare() == "" and not machine.calls.exists()


def test_root_gets_what_is_missing_and_is_told(machine: Machine) -> None:
    machine.user(0)
    machine.apt()
    machine.add("chromium")
    said = machine.prepare()
    assert machine.installed == {"bubblewrap", "systemd"}
    assert "bubblewrap" in said and "systemd" in said and "chromium" not in said


@pytest.mark.parametrize("allowed", [True, False])
def test_others_do_if_sudo_asks_for_no_password(machine: Machine, allowed: bool) -> None:
    machine.user(1000)
    machine.apt()
    machine.sudo(allowed)
    said = machine.prepare()
    assert machine.installed == (set(NEEDED.values()) if allowed else set())
    assert all(package in said for package in NEEDED.values())


def test_what_cannot_be_had_keeps_nothing_else_away(machine: Machine) -> None:
    machine.user(0)
    machine.apt(refused="chromium")
    assert "could not install chromium" in machine.prepare()
    assert machine.installed == set(NEEDED.values())  # all were tried


@pytest.mark.parametrize("root", [True, False])
def test_without_apt_the_missing_ones_are_named(machine: Machine, root: bool) -> None:
    machine.user(0 if root else 1000)
    assert all(package in machine.prepare() for package in NEEDED.values())
