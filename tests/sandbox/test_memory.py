"""The memory of all processes of a run together, which a control group limits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rho_sandbox import Backend, Limits, groups, run_python

SMALL = Limits(memory_bytes=128 << 20, processes=16, folder_bytes=8 << 20)
# Each process stays within its own limit; all of them hold their memory at the same time.
CROWD = """
import os, select, time
ready, say = os.pipe()
for number in range(8):
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20)) * 80
        os.write(say, b"x")
        time.sleep(60)
for number in range(8):
    assert select.select([ready], [], [], 2)[0], "one of them is gone"
    os.read(ready, 1)
print("ESCAPED")
"""


def test_many_processes_hold_no_more_than_the_run_may(backend: Backend) -> None:
    if not groups.available():
        pytest.skip("this process may make no control group with a memory limit")
    before = _groups()
    result = run_python(CROWD, limits=SMALL, backend=backend)
    assert not result.ok and "ESCAPED" not in result.stdout, result
    assert run_python("print(2)", limits=SMALL, backend=backend).stdout == "2\n"
    assert _groups() == before, "nothing of a run stays behind"


def test_where_there_are_no_groups_a_run_goes_without(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "ROOT", tmp_path)
    assert groups.available.__wrapped__() is False
    monkeypatch.setattr(groups, "available", lambda: False)
    assert run_python("print(2)", limits=SMALL, backend=backend).stdout == "2\n"


def _groups() -> set[Path]:
    return {
        group for parent, _ in groups._places() for group in parent.glob(f"rho-eos-{os.getpid()}-*")
    }


def test_what_a_killed_process_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("4:memory:/here\n0::/there\n")
    monkeypatch.setattr(groups, "ROOT", tmp_path)
    monkeypatch.setattr(groups, "MINE", mine)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for place in (tmp_path / "memory" / "here", tmp_path / "there"):
        for owner in (ended.pid, os.getpid()):
            (place / f"rho-eos-{owner}-1").mkdir(parents=True)
    groups._remove_those_of_the_dead()
    left = {group.name for group in tmp_path.rglob("rho-eos-*")}
    assert left == {f"rho-eos-{os.getpid()}-1"}
