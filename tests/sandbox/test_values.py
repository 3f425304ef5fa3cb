"""What tests can do with a solution in another process: as good as all they could do before."""

import textwrap

import pytest

from rho_sandbox import Backend, run_python
from tests.support import require

VALUES = [
    "None",
    "True",
    "-(2 ** 70)",
    "255",
    "-128",
    "0.1",
    "float('inf')",
    "1 + 2j",
    "'grün \\ud800'",
    "b'\\x00\\xff'",
    "bytearray(b'x')",
    "[1, [2, (3, {4: {5}})]]",
    "frozenset({1, 2})",
    "range(1, 10, 2)",
    "slice(1, None)",
    "...",
    "int",
    "ValueError",
    "{1: 2}.keys()",
    "{1: 2}.items()",
    "decimal.Decimal('1.10')",
    "fractions.Fraction(1, 3)",
    "datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.timezone.utc)",
    "datetime.date(2024, 2, 29)",
    "datetime.timedelta(days=-1, seconds=5)",
    "collections.Counter('aab')",
    "collections.OrderedDict([(2, 1), (1, 2)])",
    "collections.deque([1, 2], 5)",
    "collections.defaultdict(list, {1: [2]})",
    "math",
]


def passes(backend: Backend, code: str, tests: str) -> None:
    result = run_python(textwrap.dedent(code), tests=textwrap.dedent(tests), backend=backend)
    assert result.ok, result.stderr


def test_values_go_there_and_back(backend: Backend) -> None:
    checks = "\n".join(
        f"x = {value}\nassert same(x) == x == made[{n}], x\nassert repr(same(x)) == repr(x), x"
        for n, value in enumerate(VALUES)
        if "defaultdict" not in value
    )
    imports = "import collections, datetime, decimal, fractions, math\n"
    code = f"{imports}def same(x):\n    return x\nmade = [{', '.join(VALUES)}]\n"
    passes(backend, code, imports + checks)


#: Honest solutions, and tests that hold for them.
HONEST = {
    "subclasses are what they are a subclass of": (
        """
        import collections, enum
        Point = collections.namedtuple("Point", "x y")
        class Level(enum.IntEnum):
            LOW = 1
        class Names(list): pass
        def f():
            return Point(1, 2), Level.LOW, Names("ab"), collections.defaultdict(int, a=1)
        """,
        """
        point, level, names, counts = f()
        assert point == (1, 2) and point.y == 2
        assert (level, names, counts) == (1, ["a", "b"], {"a": 1})
        """,
    ),
    "arguments are changed in place": (
        """
        def change(items, table, seen):
            items.sort()
            items.append(table)
            table["new"] = seen
            seen.add(9)
            return items
        """,
        """
        items, table, seen = [3, 1], {}, set()
        result = change(items, table, seen)
        assert result is items and items[2] is table and table["new"] is seen and seen == {9}
        assert items[:2] == [1, 3]
        """,
    ),
    "classes objects and their members": (
        """
        class Node:
            made = 0
            def __init__(self, value, next=None):
                self.value, self.next = value, next
                Node.made += 1
            def __eq__(self, other):
                return isinstance(other, Node) and self.value == other.value
            def __hash__(self):
                return hash(self.value)
            def __iter__(self):
                node = self
                while node is not None:
                    yield node.value
                    node = node.next
            def __len__(self):
                return sum(1 for _ in self)
            def __getitem__(self, index):
                return list(self)[index]
            def __add__(self, other):
                return Node(self.value + other.value)
            def __repr__(self):
                return f"Node({self.value})"
            def __enter__(self):
                return self
            def __exit__(self, *error):
                self.value = str(error[1])
                return True
        def last(node):
            return node if node.next is None else last(node.next)
        """,
        """
        import copy
        a = Node(1, Node(2))
        a.next.next = Node(3)
        assert list(a) == [1, 2, 3] and len(a) == 3 and a[1] == 2 and 3 in a and 4 not in a
        assert last(a) is a.next.next and last(a).value == 3 and Node.made == 3
        assert Node(5) == Node(5) and Node(5) != Node(6) and len({Node(5), Node(5)}) == 1
        assert isinstance(a, Node) and not isinstance(3, Node) and repr(a + a) == "Node(2)"
        assert [Node(1)] == [Node(1)] and hasattr(a, "value") and not hasattr(a, "other")
        b = copy.deepcopy(a)
        b.value = 7
        assert (a.value, b.value, f"{b}") == (1, 7, "Node(7)")
        with b:
            raise ValueError("kept")
        assert b.value == "kept"
        """,
    ),
    "functions generators and coroutines": (
        """
        def count(n):
            while True:
                yield n
                n += 1
        def adder(n):
            return lambda x, *, twice=False: (x + n) * (1 + twice)
        def apply(function, items):
            return [function(item) for item in items]
        def doubled(items):
            return map(lambda x: 2 * x, items)
        async def later(x):
            import asyncio
            await asyncio.sleep(0)
            return x
        """,
        """
        import asyncio, itertools
        assert list(itertools.islice(count(3), 3)) == [3, 4, 5]
        assert adder(1)(2, twice=True) == 6
        assert apply(lambda x: x * 3, [1, 2]) == [3, 6] and apply(len, ["ab"]) == [2]
        assert apply(adder(1), [1]) == [2] and list(doubled([1, 2])) == [2, 4]
        assert asyncio.run(later(4)) == 4
        """,
    ),
    "errors are of the same class": (
        """
        import json
        class TooSmall(ValueError):
            def __init__(self, size):
                super().__init__(f"only {size}")
                self.size = size
        def fail(kind):
            if kind == "own":
                raise TooSmall(3)
            if kind == "json":
                json.loads("{")
            if kind == "key":
                return {}["x"]
            return 1 / 0
        """,
        """
        import json
        def error(kind):
            try:
                fail(kind)
            except Exception as error:
                return error
        own = error("own")
        assert type(own) is TooSmall and isinstance(own, ValueError)
        assert own.size == 3 and str(own) == "only 3"
        assert isinstance(error("key"), KeyError) and error("key").args == ("x",)
        assert isinstance(error(""), ZeroDivisionError)
        assert isinstance(error("json"), json.JSONDecodeError)
        try:
            apply = fail("own")
        except TooSmall:
            pass
        """,
    ),
    "tests see the names of the solution as they are now": (
        "import math as m\ncount = 0\ndef f():\n    global count\n    count += 1",
        "f()\nf()\nclass Case:\n    seen = count\nassert Case.seen == 2\n"
        "assert [count for _ in 'a'] == [2]\nassert count == 2 and m.floor(2.5) == 2\n"
        "def inner():\n    return count\n"
        "f()\nassert inner() == 3\ntry:\n    missing\n    assert False\nexcept NameError: pass",
    ),
    "a function may be called like a builtin": (
        "def sum(a, b):\n    return a * b",
        "assert sum(2, 3) == 6",
    ),
    "a large answer arrives": (
        "def f(n):\n    return list(range(n)), 'x' * n",
        "assert f(10**5)[0][-1] == 99999",
    ),
    "deep answers and cycles fail cleanly": (
        """
        def deep():
            x = []
            for _ in range(10**5):
                x = [x]
            return x
        def cycle():
            x = [1]
            x.append(x)
            return x
        """,
        """
        x = cycle()
        assert x[1] is x and x[0] == 1
        try:
            deep()
            assert False
        except RecursionError:
            pass
        """,
    ),
}


@pytest.mark.parametrize("what", HONEST)
def test_tests_see_a_solution_as_if_it_were_theirs(backend: Backend, what: str) -> None:
    passes(backend, *HONEST[what])


def test_numpy_goes_by_value(backend: Backend) -> None:
    found = run_python("import numpy", backend=backend)
    require(found.ok, "numpy is not installed for the sandbox")
    passes(
        backend,
        "import numpy as np\ndef f(x):\n    return np.array(x) * 2, np.int64(3), np.float32(0.5)",
        """
        import numpy
        array, whole, part = f([1, 2])
        assert (array == numpy.array([2, 4])).all() and (whole, part) == (3, 0.5)
        assert np.array_equal(array, [2, 4])
        """,
    )


def test_the_output_of_both_is_kept_in_order(backend: Backend) -> None:
    result = run_python(
        "print('a')\ndef f():\n    print('b')",
        tests="f()\nprint('c', flush=True)\nf()",
        backend=backend,
    )
    assert result.ok and result.stdout == "a\nb\nc\nb\n"
