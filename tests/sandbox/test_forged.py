"""Solutions that turn the flow of their tests, or send messages of their own making."""

import pytest

from rho_sandbox import DEFAULT_LIMITS, Backend
from tests.sandbox.hostile import judged

#: Wrong solution, right one, and tests whose flow the wrong one tries to turn.
FLOWS = {
    "an end of iteration, taken for their own by `map` and `all`": (
        "def f(x): raise StopIteration",
        "def f(x): return 2 * x",
        "assert all(map(lambda case: f(case[0]) == case[1], [(1, 2), (3, 6)]))",
    ),
    "an end of iteration of another name, in a loop": (
        "class Fine(StopIteration): pass\ndef f(x): raise Fine",
        "def f(x): return 2 * x",
        "def check(x):\n    assert f(x) == 2 * x\nfor _ in map(check, [1, 2]): pass",
    ),
    "an end of iteration by a property": (
        "class f:\n    @property\n    def value(self): raise StopIteration",
        "class f:\n    value = 2",
        "assert all(map(lambda thing: thing.value == 2, [f()]))",
    ),
    "a block that hides errors": (
        """
        class f:
            value = 1
            def __enter__(self): return self
            def __exit__(self, *a): return True
        """,
        """
        class f:
            value = 2
            def __enter__(self): return self
            def __exit__(self, *a): return False
        """,
        "with f() as thing:\n    assert thing.value == 2",
    ),
    "a block made of a generator that hides errors": (
        """
        import contextlib
        @contextlib.contextmanager
        def f():
            with contextlib.suppress(BaseException):
                yield 1
        """,
        "import contextlib\n@contextlib.contextmanager\ndef f():\n    yield 2",
        "import contextlib\nwith contextlib.ExitStack() as stack:\n"
        "    assert stack.enter_context(f()) == 2",
    ),
    "a caller that hides what it is told": (
        "def f(callback):\n    try:\n        callback(1)\n    except BaseException:\n        pass",
        "def f(callback):\n    callback(2)",
        "def callback(x):\n    assert x == 2\nf(callback)",
    ),
    "a decorator that hides what it is told": (
        """
        def f(function):
            def quiet(*a):
                try: return function(1)
                except AssertionError: return None
            return quiet
        """,
        "def f(function): return function",
        "@f\ndef check(x):\n    assert x == 2\ncheck(2)",
    ),
    "a reader of a generator that hides how it ended": (
        """
        def f(numbers):
            try: return [next(numbers), numbers.send(1), next(numbers)]
            except BaseException: return []
        """,
        "def f(numbers): return [next(numbers), numbers.send(2)]",
        "def numbers():\n    assert (yield 1) == 2\n    yield 3\nf(numbers())",
    ),
    "an error that says the test is to be skipped": (
        "import unittest\ndef f(): raise unittest.SkipTest('later')",
        "def f(): return 2",
        """
        import unittest
        class Test(unittest.TestCase):
            def test(self):
                self.assertEqual(f(), 2)
        run = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(Test).run(run)
        assert run.testsRun == 1 and run.wasSuccessful()
        """,
    ),
    "an array that lies where the tests have their numbers": (
        """
        class f:
            @property
            def __array_interface__(self):
                place = id(2) + 24
                return {"data": (place, False), "shape": (1,), "typestr": "<i4", "version": 3}
        """,
        "import numpy\ndef f(): return numpy.array([2])",
        "import numpy\nassert numpy.asarray(f()).ravel()[0] == 2",
    ),
}


@pytest.mark.parametrize("flow", FLOWS)
def test_the_flow_of_the_tests_is_their_own(backend: Backend, flow: str) -> None:
    wrong, right, tests = FLOWS[flow]
    result = judged(backend, wrong, tests)
    assert not result.ok, result
    honest = judged(backend, right, tests, DEFAULT_LIMITS)
    assert honest.ok, honest


#: What is sent in place of an answer, by a solution that writes its own messages.
MESSAGES = {
    "an array of objects": '("array", "<i4", (1,), [Address()])',
    "an array of anything": '("array", "O", (1,), [Address()])',
    "an array of arrays": '("array", "(2,)i4", (1,), [2])',
    "the module of the tests": '("module", "tests")',
    "a module of the sandbox": '("module", "inside.judge")',
}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_leads_to_no_memory_and_no_module(backend: Backend, message: str) -> None:
    code = f"""
    import sys
    class Address:
        @property
        def __array_interface__(self):
            place = id(2) + 24
            return {{"data": (place, False), "shape": (1,), "typestr": "<i4", "version": 3}}
    class Forged:
        pass
    library = sys.modules["inside.library"]
    describe = library.describe
    library.describe = lambda v: {MESSAGES[message]} if type(v) is Forged else describe(v)
    def f(change):
        try:
            change(Forged(), "expected", 1)
        except BaseException:
            pass
        return Forged()
    """
    reached = "answer = f(setattr)\nassert expected == 1 or type(answer) is not type(f)"
    result = judged(backend, code, f"expected = 2\n{reached}")
    assert not result.ok, result
