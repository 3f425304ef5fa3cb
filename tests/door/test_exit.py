"""How the process of a command ends: exit handlers run, the exit code is right, nothing is said."""

from pathlib import Path

import pytest

from tests import forks

#: A library that has the interpreter call it when all is taken apart, as nanobind does to report
#: the objects that are left. This one aborts.
PLUGIN = """
import atexit, ctypes
ctypes.pythonapi.Py_AtExit(ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p))
atexit.register(print, "an exit handler ran")
"""


@pytest.mark.parametrize(("words", "code"), [(["info", "tiny"], 0), (["info", "nothing"], 2)])
def test_libraries_report_nothing_at_the_end(words: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    ended = forks.run("-m", "rho_eos", *words, "--plugin", tmp_path / "plugin.py")
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.count("\n") == (code > 0)
    assert ended.stdout.endswith("an exit handler ran\n")
