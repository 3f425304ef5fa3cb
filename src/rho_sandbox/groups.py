"""Control groups, where this process may make one: a limit on the memory of a whole run.

Limits of the kernel's older kind hold for each process by itself. A control group counts all of
them, and the work folder, which lives in memory. Both versions of the interface are tried; where
neither lets us (no root, no delegated group), a run goes without.
"""

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MINE = Path("/proc/self/cgroup")
_SHELL = 'echo $$ > "$0" && exec "$@"'  # joins the group, then becomes the command


@contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """A group that may hold so many bytes in all, gone afterwards; None where there can be none."""
    made = _make(limit) if available() else None
    try:
        yield made
    finally:
        if made is not None:
            _remove(made)


def joined(group: Path | None, command: list[str]) -> list[str]:
    """The command that starts `command` in the group."""
    if group is None:
        return command
    return ["/bin/sh", "-c", _SHELL, str(group / "cgroup.procs"), *command]


@cache
def available() -> bool:
    """Whether a group can be made, limited and joined here. This is found out by trying."""
    _remove_those_of_the_dead()
    group = _make(1 << 30)
    if group is None:
        return False
    tried = subprocess.run(joined(group, ["/bin/sh", "-c", ":"]), capture_output=True, check=False)
    _remove(group)
    return tried.returncode == 0


def _make(limit: int) -> Path | None:
    for parent, name in _places():
        group = parent / f"rho-eos-{os.getpid()}-{uuid.uuid4().hex}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            with (group / name).open("r+") as file:  # if it is there: it cannot be made
                file.write(str(limit))
        except OSError:  # the controller is not ours to use
            _remove(group)
            continue
        for swap, most in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", limit)):
            with suppress(OSError), (group / swap).open("r+") as file:  # where swap is counted
                file.write(str(most))
        return group
    return None


def _places() -> Iterator[tuple[Path, str]]:
    """Where our own group is, in either version, and the file that limits one below it."""
    with suppress(OSError):
        for line in MINE.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield ROOT / path.lstrip("/"), "memory.max"
            elif "memory" in controllers.split(","):
                yield ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"


def _remove_those_of_the_dead() -> None:
    """Remove the groups of processes that were killed before they could do it."""
    for parent, _ in _places():
        for group in parent.glob("rho-eos-*-*"):
            owner = group.name.split("-")[2]
            if owner.isdigit() and not Path("/proc", owner).exists():
                with suppress(OSError):
                    group.rmdir()


def _remove(group: Path) -> None:
    for _ in range(200):  # the last process may still be on its way out
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.01)
