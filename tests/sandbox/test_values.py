"""What tests can do with a solution in another process: call it, and compare plain values."""

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rho_sandbox import Backend, run_python
from rho_sandbox.inside import plain
from tests.attack import times
from tests.support import require

PLAIN = [
    "None",
    "True",
    "-(2 ** 70)",
    "255",
    "-128",
    "0.1",
    "-0.0",
    "float('inf')",
    "1 + 2j",
    "'grün \\ud800'",
    "b'\\x00\\xff'",
    "[1, [2, (3, {4: {5}})]]",
    "frozenset({1, 2})",
    "{(1, 'a'): None, 2.5: []}",
    "()",
]
#: What a solution may return, and nothing that tests compare it with is equal to it.
OPAQUE = [
    "object()",
    "bytearray(b'x')",
    "range(2)",
    "...",
    "int",
    "len",
    "{1: 2}.keys()",
    "decimal.Decimal('1.5')",
    "fractions.Fraction(1, 2)",
    "datetime.date(2024, 2, 29)",
    "collections.deque([1, 2])",
    "(n for n in [1])",
    "math",
]


def passes(backend: Backend, code: str, tests: str) -> None:
    result = run_python(textwrap.dedent(code), tests=textwrap.dedent(tests), backend=backend)
    assert result.ok, result.stderr


def test_plain_values_go_there_and_back(backend: Backend) -> None:
    checks = "\n".join(
        f"x = {value}\nassert same(x) == x == made[{n}], x\nassert repr(same(x)) == repr(x), x"
        for n, value in enumerate(PLAIN)
    )
    passes(backend, f"def same(x):\n    return x\nmade = [{', '.join(PLAIN)}]\n", checks)


def test_what_is_not_plain_equals_nothing_and_can_be_passed_back(backend: Backend) -> None:
    imports = "import collections, datetime, decimal, fractions, math\n"
    made = ", ".join(OPAQUE)
    code = f"made = [{made}]\ndef get(n): return made[n]\ndef is_it(x, n): return x is made[n]\n"
    tests = f"""
    for n, value in enumerate([{made}]):
        x = get(n)
        assert is_it(x, n) and x != value and value != x and x not in [value, 1, 1.5, 0.5, None]
        assert not x == get(n) and str(value) not in str(x) and not hasattr(x, "x")
        for use in (len, bool, iter, abs, int, float, next, lambda x: x(), lambda x: x + 1):
            try:
                use(x)
            except TypeError:
                continue
            raise SystemError(f"{{use}} of {{x}}")
    """
    passes(backend, imports + code, imports + textwrap.dedent(tests))


#: Honest solutions, and tests that hold for them.
HONEST = {
    "subclasses are what they are a subclass of": (
        """
        import collections, enum
        Point = collections.namedtuple("Point", "x y")
        class Level(enum.IntEnum):
            LOW = 1
        class Color(str, enum.Enum):
            RED = "red"
        class Names(list): pass
        def f():
            return Point(1, 2), Level.LOW, Names("ab"), collections.Counter("a"), Color.RED
        """,
        """
        assert f() == ((1, 2), 1, ["a", "b"], {"a": 1}, "red")
        assert [type(x) for x in f()] == [tuple, int, list, dict, str]
        """,
    ),
    "objects and functions are passed back": (
        """
        class Node:
            def __init__(self, value, next=None):
                self.value, self.next = value, next
        def listed(node):
            return [] if node is None else [node.value, *listed(node.next)]
        def apply(function, *items):
            return function(*items)
        first = Node(0)
        """,
        """
        assert listed(Node(1, Node(2, next=None))) == [1, 2] and listed(first) == [0]
        assert apply(listed, Node(3)) == [3] and apply(apply, apply, listed, first) == [0]
        """,
    ),
    "errors are of the same class": (
        """
        import json
        class TooSmall(ValueError): pass
        def fail(kind):
            if kind == "own":
                raise TooSmall("only 3")
            if kind == "json":
                json.loads("{")
            if kind == "key":
                return {}["x"]
            return 1 / 0
        """,
        """
        def error(kind):
            try:
                fail(kind)
            except Exception as error:
                return error
        assert type(error("own")) is ValueError and str(error("own")) == "TooSmall: only 3"
        assert isinstance(error("key"), KeyError) and isinstance(error("json"), ValueError)
        assert isinstance(error(""), ZeroDivisionError)
        """,
    ),
    "tests see the names of the solution as they are now": (
        "count = 0\ndef f():\n    global count\n    count += 1",
        "f()\nf()\nclass Case:\n    seen = count\nassert Case.seen == 2\n"
        "assert [count for _ in 'a'] == [2]\n"
        "def inner():\n    return count\n"
        "f()\nassert inner() == 3\ntry:\n    missing\n    assert False\nexcept NameError: pass",
    ),
    "a function may be called like a builtin": (
        "def sum(a, b):\n    return a * b",
        "assert sum(2, 3) == 6",
    ),
    "a large answer arrives": (
        "def f(n):\n    return list(range(n)), 'x' * n",
        "assert f(10**5)[0][-1] == 99999 and len(f(10**5)[1]) == 100000",
    ),
    "answers that are too deep or too large are errors": (
        """
        def deep(n):
            x = []
            for _ in range(n):
                x = [x]
            return x
        def cycle():
            x = [1]
            x.append(x)
            return x
        def large():
            return bytes(70 << 20)
        """,
        """
        assert len(deep(50)) == 1
        for call in (lambda: deep(10**5), cycle, large, lambda: deep(100)):
            try:
                call()
            except ValueError:
                continue
            raise SystemError("that was no error")
        """,
    ),
}


@pytest.mark.parametrize("what", HONEST)
def test_tests_of_an_honest_solution_pass(backend: Backend, what: str) -> None:
    passes(backend, *HONEST[what])


def test_what_tests_may_not_hand_over_or_import_is_said(backend: Backend) -> None:
    for tests, said in {
        "import fractions\nf(fractions.Fraction(1, 2))": "'Fraction' is no type of those",
        "f(lambda x: x)": "'function' is no type of those",
        "import os": "tests cannot import 'os'",
        "from inside import judge": "tests cannot import 'inside'",
    }.items():
        result = run_python("def f(x): return 2", tests=tests, backend=backend)
        assert not result.ok and said in result.stderr, result


def test_numbers_of_numpy_are_numbers(backend: Backend) -> None:
    found = run_python("import numpy", backend=backend)
    require(found.ok, "numpy is not installed for the sandbox")
    passes(
        backend,
        "import numpy as np\ndef f():\n"
        "    return np.int64(3), np.float32(0.5), np.bool_(True), np.float16(1e9), np.array([3])",
        """
        import numpy
        *numbers, array = f()
        assert numbers == [3, 0.5, True, float("inf")] and type(numbers[0]) is int
        for number in (65520, 10**9, numpy.float64(65520)):
            assert numbers[3] != number and array != number
        """,
    )


def test_the_output_of_both_is_kept_in_order(backend: Backend) -> None:
    result = run_python(
        "print('a')\ndef f():\n    print('b')",
        tests="f()\nprint('c', flush=True)\nf()",
        backend=backend,
    )
    assert result.ok and result.stdout == "a\nb\nc\nb\n"


KEYS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.binary()
KEYS |= st.text() | st.complex_numbers(allow_nan=False) | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    KEYS | st.frozensets(KEYS),
    lambda inner: (
        st.lists(inner) | st.dictionaries(KEYS, inner) | st.sets(KEYS) | st.lists(inner).map(tuple)
    ),
)


def refuse(value: object) -> object:
    raise AssertionError(f"{value!r} is plain")


def types_of(value: object) -> object:
    """The exact types of a value and of all that is in it."""
    if isinstance(value, dict):
        return dict, sorted(str((types_of(k), types_of(v))) for k, v in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value), sorted(str(types_of(each)) for each in value)
    return type(value)


@settings(max_examples=times(50, 1000))
@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    found = plain.read(plain.write(value, refuse))
    assert found == value and types_of(found) == types_of(value)


@settings(max_examples=times(100, 2000))
@given(st.binary(max_size=60) | st.binary(max_size=8).map(lambda tail: b"[\3\0\0\0" + tail), VALUES)
def test_any_bytes_are_a_plain_value_or_refused(noise: bytes, value: object) -> None:
    """Also honest messages that are cut off, or damaged in one place."""
    honest = plain.write(value, refuse)
    place = len(noise) % len(honest)
    damaged = honest[:place] + noise[:1] + honest[place + 1 :]
    for data in (noise, honest[:place], damaged, honest + noise[:1]):
        try:
            found = plain.read(data)
        except plain.BrokenWire:
            continue
        assert set(kinds(found)) <= ALLOWED


ALLOWED = {type(None), bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict}
ALLOWED |= {plain.Opaque}


def kinds(value: object) -> list[type]:
    inner: list[object] = []
    if isinstance(value, dict):
        inner = [each for pair in value.items() for each in pair]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)
    return [type(value), *(kind for each in inner for kind in kinds(each))]
