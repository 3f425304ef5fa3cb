"""Code that tries to give itself a pass, or to learn what its tests expect.

The solution is wrong each time: `f()` is 1, or what it found of the tests, which want 2.
"""

import secrets
import textwrap

import pytest

from rho_eos.evals import Sample
from rho_eos.evals.graders.python_tests import running_in
from rho_eos.evals.tasks.code_task import HumanEval
from rho_sandbox import DEFAULT_LIMITS, Backend, Limits
from tests.sandbox.hostile import judged
from tests.sandbox.tricks_of_interpreter import OF_INTERPRETER
from tests.sandbox.tricks_of_process import OF_PROCESS

TRICKS = OF_INTERPRETER | OF_PROCESS
TESTS = """
import math
assert math.floor(2.5) == 2
answer = f(2)
assert answer == "{secret}" or (answer == 2 and abs(answer - 2) < 0.1)
"""


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("moment", ["on loading", "when called"])
def test_a_trick_is_not_a_pass(backend: Backend, trick: str, moment: str) -> None:
    secret, code = f"MARK_{secrets.token_hex(8)}", textwrap.dedent(TRICKS[trick]).strip()
    answer = "    return found[-1] if found else 1\n"
    if moment == "on loading":
        program = f"def f(*arguments):\n{answer}{code}\n"
    else:
        code = textwrap.indent(code, "    ")
        program = f"def f(*arguments):\n    global found\n{code}\n{answer}"
    # These stay until the time is over; they have had their say long before.
    stays = trick.startswith(("fork", "builtins: the comparison"))
    limits = Limits(wall_seconds=4 if stays else 10, cpu_seconds=2, memory_bytes=512 << 20)
    result = judged(backend, f"found = []\n{program}", TESTS.format(secret=secret), limits)
    assert not result.ok, result
    assert secret not in result.stdout


ANSWERS = {
    "everything is equal to it": "__eq__ = lambda self, other: True\n__hash__ = lambda self: 0",
    "nothing is unequal to it": "__ne__ = lambda self, other: False\n__eq__ = lambda *a: True",
    "everything is near it": """
        __sub__ = __rsub__ = __add__ = __radd__ = __mod__ = lambda self, other: 0
        __abs__ = lambda self: 0
        __lt__ = __le__ = __gt__ = __ge__ = __eq__ = lambda self, other: True
    """,
    "it contains everything": """
        __contains__ = __eq__ = lambda self, other: True
        __iter__ = lambda self: iter(())
    """,
    "it claims another class": """
        __class__ = int
        __eq__ = lambda self, other: True
        __instancecheck__ = lambda self, other: True
    """,
}
BASES = ["object", "int", "str", "list", "dict", "tuple", "float", "set"]
QUESTIONS = [
    "assert f() == 2",
    "assert 2 == f()",
    "assert not f() != 2",
    "assert f() in [2, 3]",
    "assert [f()] == [2]",
    "assert {'a': f()} == {'a': 2}",
    "assert abs(f() - 2) < 1e-6",
    "assert f() >= 2 and f() <= 2",
    "assert 2 in f()",
    "assert type(f()) is int and f() == 2",
    "assert isinstance(f(), int) and f() == 2",
    "import math\nassert math.isclose(f(), 2)",
    "import unittest\nunittest.TestCase().assertEqual(f(), 2)",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_does_not_decide_whether_it_is_right(backend: Backend, answer: str) -> None:
    body = textwrap.indent(textwrap.dedent(ANSWERS[answer]).strip(), "    ")
    classes = "".join(f"class A{base}({base}):\n{body}\n" for base in BASES)
    cases = "".join(f"    A{base},\n" for base in BASES)
    program = f"{classes}cases = [\n{cases}]\nkind = None\n"
    program += "def choose(n):\n    global kind\n    kind = cases[n]\ndef f():\n    return kind()\n"
    attempts = [f"def q{n}():\n" + textwrap.indent(q, "    ") for n, q in enumerate(QUESTIONS)]
    tests = "\n".join(attempts) + textwrap.dedent(f"""
        for base in range({len(BASES)}):
            choose(base)
            for question in [{", ".join(f"q{n}" for n in range(len(QUESTIONS)))}]:
                try:
                    question()
                except (AssertionError, TypeError, ValueError):
                    continue
                print("PASSED", base, question.__name__)
        print("ALL ASKED")
        """)
    result = judged(backend, program, tests)
    assert result.stdout == "ALL ASKED\n" and not result.ok, result


def test_expected_values_are_nowhere_in_the_memory_of_the_code(backend: Backend) -> None:
    """It reads its raw memory, page by page. Backwards, so as not to find what it looks for."""
    code = """
    import ctypes, os
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    def scan():
        page, found = 4096, 0
        reader, writer = os.pipe()
        for middle in (id(object()), libc.sbrk(0)):
            for step in range(-2048, 2048):
                address = (middle & ~(page - 1)) + step * page
                try:
                    os.write(writer, (ctypes.c_char * page).from_address(address))
                except OSError:
                    continue
                found += b"STSET_EHT_FO_REKRAM" in os.read(reader, page)[::-1]
        return found
    """
    code, marker = textwrap.dedent(code), "'MARKER_OF_THE_TESTS'"
    hidden = judged(backend, code, f"expected = {marker}\nassert scan() == 0", DEFAULT_LIMITS)
    assert hidden.ok, hidden
    seen = judged(backend, f"{code}\nx = {marker}", "assert scan() > 0", DEFAULT_LIMITS)
    assert seen.ok, "the search does not find what is there"


def test_what_is_no_message_ends_the_tests_without_a_pass(backend: Backend) -> None:
    """Also where a test catches everything."""
    noise = (
        b"",
        b"=" * 40,
        b"i" + b"\xff" * 8,
        b"(\x02\0\0\0s",
        b"N",
        b"[\1\0\0\0",
        b"1" + bytes(4),
    )
    for message in noise:
        code = f"""
        import os
        def f():
            message = {message}
            for fd in range(3, 64):
                attempt(lambda: os.write(fd, len(message).to_bytes(4, "little") + message))
            return 2
        """
        tests = "try:\n    f()\nexcept BaseException:\n    pass\n"
        assert not judged(backend, code, tests).ok, message


def test_helpers_of_a_humaneval_prompt_are_not_the_answers_to_replace(backend: Backend) -> None:
    """The tests of HumanEval/32 check a root with the prompt's `poly` and `math`."""
    prompt = textwrap.dedent('''
        import math
        def poly(xs, x):
            """Evaluate."""
            return sum(c * math.pow(x, i) for i, c in enumerate(xs))
        def find_zero(xs):
            """Find x such that poly(x) = 0."""
        ''')
    test = "def check(candidate):\n    assert math.fabs(poly([1, 2], candidate([1, 2]))) < 1e-4\n"
    data = {"task_id": "x", "prompt": prompt, "entry_point": "find_zero", "test": test}
    task = HumanEval()
    sample = Sample("x", {**data, "canonical_solution": "    return -xs[0] / xs[1]\n"})
    with running_in(backend):
        assert task.grade(sample, task.gold(sample)).correct
    cheat = "class math:\n    fabs = abs\ndef poly(*a): return 0\ndef find_zero(xs): return 7\n"
    with running_in(backend):
        assert not task.grade(sample, f"<answer>\n```python\n{cheat}```\n</answer>").correct
