"""The process that runs the tests. The untrusted code is in another one, and only sends values.

The tests call its functions by their names, and get plain values (`plain.py`). Whatever the code
does to its own interpreter, its files or its end of the wire, this process decides with its own.
It reports a pass on a pipe that the other never had.
"""

from __future__ import annotations

import _ast
import _symtable  # type: ignore[import-not-found]
import builtins
import os
import sys
import types

from . import plain
from .output import FRAMES, flush, show

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

PASSED = b"passed"
SOLUTION_GONE = 124  # the exit status that says: ask the other process why
MODULE = "tests"
NOTE = "__note_failure__"
ONLY_AST = 0x400
LONGEST_MESSAGE = 10_000
#: What tests may import: what calculates, and what checks.
MODULES = {
    *("__future__", "abc", "array", "base64", "bisect", "calendar", "cmath", "collections"),
    *("contextlib", "copy", "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions"),
    *("functools", "hashlib", "heapq", "itertools", "json", "math", "numbers", "numpy"),
    *("operator", "random", "re", "statistics", "string", "textwrap", "time", "types", "typing"),
    *("unicodedata", "unittest", "zlib"),
}
#: Errors of the solution that are the same here. `StopIteration` would end loops of the tests.
ERRORS: dict[Any, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        *(ArithmeticError, AssertionError, AttributeError, EOFError, Exception, ImportError),
        *(FileNotFoundError, IndexError, KeyError, LookupError, MemoryError, NameError),
        *(NotImplementedError, OSError, OverflowError, PermissionError, RecursionError),
        *(RuntimeError, SyntaxError, TimeoutError, TypeError, ValueError, ZeroDivisionError),
    )
}


class SolutionError(Exception):
    """An error of the solution that is none of `ERRORS`; it says which."""

    __module__ = "builtins"


class Function(plain.Opaque):
    """A function of the solution, by its name. It can be called, and passed to another one."""

    __slots__ = ("_opaque_solution",)

    def __init__(self, name: str, solution: Solution) -> None:
        super().__init__(name)
        self._opaque_solution = solution

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._opaque_solution.ask(self._opaque_key, (arguments, named))

    def __bool__(self) -> bool:
        return True


class Solution:
    """The process of the untrusted code. `broken` says why the talk with it ended, if it did."""

    def __init__(self, wire: plain.Wire) -> None:
        self.wire = wire
        self.broken: BaseException | None = None

    def ask(self, name: int | str, call: tuple[Any, Any] | None = None) -> Any:
        """What a function returns for these arguments; without them, what a name stands for."""
        question = plain.write((name, call), refuse)
        try:
            self.wire.send(question)
            answer = plain.read(self.wire.receive())
            if type(answer) is not tuple or len(answer) != 2:
                raise plain.BrokenWire("an answer that is none")
            kind, content = answer
            error = error_of(content) if kind == "error" else None
        except BaseException as broken:
            self.broken = broken
            raise
        if error is not None:
            raise error
        if kind == "missing":
            raise KeyError(name)
        return Function(str(name), self) if kind == "function" else content


def refuse(value: Any) -> NoReturn:
    name = type(value).__name__
    raise TypeError(f"the solution is called with plain values, and {name!r} is no type of those")


def error_of(content: Any) -> Exception:
    """An error of a class that this process knows, with a text and places for people to read."""
    name, text, frames = content
    made = ERRORS.get(name, SolutionError)(str(text)[:LONGEST_MESSAGE])
    vars(made)[FRAMES] = [(str(function)[:100], int(line)) for function, line in frames]
    return made


class Names(dict[str, "Any"]):
    """The builtins of the tests; what they neither define nor import is the solution's.

    A builtin stays what it is: a solution must not bring its own `abs`. Unless the tests name one
    and nothing else, because then the function under test is called like a builtin.
    """

    def __init__(self, solution: Solution, tests: str) -> None:
        super().__init__(vars(builtins) | {"__import__": import_for_tests})
        self._solution = solution
        named = free_names(tests)
        self._first = set(filter(self._is_there, named)) if named <= self.keys() else set()
        if self._first and len(named) > 1:
            raise NameError(f"of {sorted(named)} it is not known which is the solution's")

    def _is_there(self, name: str) -> bool:
        try:
            self._solution.ask(name)
        except KeyError:
            return False
        return True

    def __getitem__(self, name: str) -> Any:
        return self._solution.ask(name) if name in self._first else super().__getitem__(name)

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)
        return self._solution.ask(name)


def import_for_tests(name: str, *others: Any, **named: Any) -> Any:
    if name.partition(".")[0] not in MODULES:
        raise ImportError(f"tests cannot import {name!r}, but {', '.join(sorted(MODULES))}")
    return __import__(name, *others, **named)


def free_names(source: str) -> set[str]:
    """The names that a program uses and does not bind."""
    top = _symtable.symtable(source, "<tests>", "exec")
    bound = {name for name, flags in top.symbols.items() if flags & _symtable.DEF_BOUND}
    found, tables = set(), [top]
    while tables:
        table = tables.pop()
        tables += table.children
        for name, flags in table.symbols.items():
            scope = flags >> _symtable.SCOPE_OFF & _symtable.SCOPE_MASK
            if scope in (_symtable.GLOBAL_IMPLICIT, _symtable.GLOBAL_EXPLICIT):
                found.add(name)
    return found - bound


def noting(tests: str) -> types.CodeType:
    """The program of the tests, in which each assertion that fails is noted.

    Noted before its message is made, and whoever catches the error: it stays failed.
    """
    tree = compile(tests, "<tests>", "exec", ONLY_AST, dont_inherit=True)
    for node in nodes(tree):
        if isinstance(node, _ast.Assert):
            place = {name: getattr(node, name) for name in node._attributes}
            note = _ast.Name(NOTE, _ast.Load(), **place)
            noted = _ast.Call(note, [_ast.Constant(node.lineno, **place)], [], **place)
            node.test = _ast.BoolOp(_ast.Or(), [node.test, noted], **place)
    return compile(tree, "<tests>", "exec", dont_inherit=True)


def nodes(tree: Any) -> Iterator[Any]:
    """All nodes of a tree. `ast.walk` does this, too, but to import it takes longer than a run."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            children = value if isinstance(value, list) else [value]
            waiting += [child for child in children if isinstance(child, _ast.AST)]


def judge(tests: str, wire: plain.Wire, verdict: int) -> NoReturn:
    """Run the tests to their end, and only then say that they passed."""
    exit_code, lines = 1, tests.splitlines()
    solution = Solution(wire)
    failed: list[int] = []  # lines of assertions
    try:
        program = noting(tests)
        solution.ask("__name__")  # it has been run to its end, or there will be no answer
        names = Names(solution, tests)
        names[NOTE] = failed.append
        module = sys.modules[MODULE] = types.ModuleType(MODULE)
        vars(module)["__builtins__"] = names
        exec(program, vars(module))
        flush()
        if failed:
            print(f"AssertionError\nin test: {lines[failed[0] - 1].strip()}", file=sys.stderr)
        elif solution.broken is None:
            os.write(verdict, PASSED)
            exit_code = 0
    except plain.PeerGone:
        exit_code = SOLUTION_GONE
    except SystemExit as stop:
        flush()
        exit_code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except plain.BrokenWire as error:
        print(f"the solution broke off: {error}", file=sys.stderr)
    except BaseException as error:
        show(error, lines)
    finally:
        flush()
        os._exit(exit_code & 0xFF)
