"""Solutions that send answers of their own making, or turn the flow of their tests.

The solution is wrong each time: where the tests want 2, it has no 2 to give.
"""

import textwrap

import pytest

from rho_sandbox import DEFAULT_LIMITS, Backend, run_python
from tests.attack import LONG
from tests.sandbox.forgeries import FORGERIES, PRELUDE, SPEAK
from tests.sandbox.hostile import judged

BOTH = [Backend.BUBBLEWRAP, Backend.NAMESPACES]
#: Each in one of the sandboxes, in turns; at length in both.
ROUND = [(b, name) for n, name in enumerate(FORGERIES) for b in (BOTH if LONG else [BOTH[n % 2]])]


@pytest.mark.parametrize(("backend", "name"), ROUND, indirect=["backend"])
def test_a_forged_answer_is_not_a_pass(backend: Backend, name: str) -> None:
    code, tests = FORGERIES[name]
    result = judged(backend, PRELUDE + textwrap.dedent(code), tests)
    assert not result.ok and "REACHED" not in result.stdout + result.stderr, result


#: What shows that the forgeries above do what they say: they bring the judge an honest answer.
HONEST = {
    "bytes of one's own": "def f(x): return Raw(b'i' + size(1) + b'\\2')",
    "an answer of one's own": "def f(x): return Answer(('value', 2))",
    "all that is said": f"{SPEAK}\ndef f(x): speak(real_write(('value', 2), None), stay=True)",
}


@pytest.mark.parametrize("how", HONEST)
def test_the_means_of_forgery_work(backend: Backend, how: str) -> None:
    result = judged(backend, PRELUDE + HONEST[how], "assert f(2) == 2", DEFAULT_LIMITS)
    assert result.ok, result


#: Tests that hide their own failure: the right solution passes them, the wrong one does not.
HIDING = {
    "by `finally`": """
        def t():
            try:
                assert f(1) == 2
            finally:
                return
        t()
    """,
    "by `suppress`": """
        import contextlib
        with contextlib.suppress(Exception):
            assert f(1) == 2
    """,
    "in a group": """
        try:
            assert f(1) == 2
        except* AssertionError:
            pass
    """,
    "in a message": """
        try:
            assert f(1) == 2, 1 / 0
        except ZeroDivisionError:
            pass
    """,
    "in a message that the solution makes": """
        try:
            assert f(1) == 2, f(0)
        except ValueError:
            pass
    """,
    "in a finalizer": """
        class T:
            def __del__(self):
                assert f(1) == 2
        T()
    """,
    "in an iteration": """
        class T:
            def __getitem__(self, place):
                assert f(1) == 2, [][0]
                raise IndexError
        list(T())
    """,
    "in an attribute": """
        class T:
            @property
            def x(self):
                assert f(1) == 2, T.nothing
        hasattr(T(), "x")
    """,
    "in a framework": """
        import unittest
        class T(unittest.TestCase):
            def test(self):
                assert f(1) == 2
        T("test").run(unittest.TestResult())
    """,
}


@pytest.mark.parametrize("how", HIDING)
def test_an_assertion_that_failed_stays_failed(backend: Backend, how: str) -> None:
    tests = textwrap.dedent(HIDING[how]).strip()
    for answer in (2, 1):
        code = f"def f(x):\n    if x == 0: raise ValueError('hide')\n    return {answer}"
        result = run_python(code, tests=tests, backend=backend)
        assert result.ok == (answer == 2), result
    assert "AssertionError\nin test: assert f(1) == 2" in result.stderr


def test_tests_run_where_the_code_has_no_files(backend: Backend) -> None:
    """It leaves modules and settings in all places that it can write to."""
    code = """
    import os
    for name in ("random", "numpy", "statistics", "sitecustomize", "usercustomize", "inside"):
        for folder in (".", os.environ["HOME"], "/tmp", "/dev/shm", "tests", "/sandbox/tests"):
            try:
                os.makedirs(folder, exist_ok=True)
                open(f"{folder}/{name}.py", "w").write("raise SystemError('REACHED')")
            except OSError:
                pass
    def f(): return os.listdir(".")
    """
    tests = """
    import random, statistics
    assert "random.py" in f() and random.random() < 1
    os = random._os  # tests may not import it, and some of what they may import has it
    assert os.listdir(".") == [] and os.path.expanduser("~") != "/sandbox"
    for path in ("random.py", "tests/random.py", os.path.expanduser("~/random.py")):
        try:
            open(path)
        except OSError:
            continue
        raise SystemError(path)
    try:
        open("mine", "w")
    except OSError:
        done = True
    assert done
    """
    result = judged(backend, code, tests, DEFAULT_LIMITS)
    assert result.ok, result
