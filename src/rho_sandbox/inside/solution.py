"""The process of the untrusted code: runs it, then calls its functions as its tests ask.

Nothing here is believed. The code can replace every function of this process, read all its memory
and write whatever it likes to the wire; it knows neither the tests nor whether they passed.
"""

# ruff: noqa: PTH108
# pathlib would take longer to import than this file to run, and it is imported for every run.

from __future__ import annotations

import builtins
import os
import sys
import types

from . import plain
from .output import flush, show

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

FINISHED = b"finished"
FRAMES_SHOWN = 10
#: From a value of a subclass to the same value of the plain type. `bool` has no subclasses.
EXACT: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: lambda value: complex(value.real, value.imag),
    str: str.__str__,
    bytes: lambda value: bytes(bytes.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
}


def work(code: str, has_tests: bool, wire: plain.Wire) -> NoReturn:
    """Run the code to its end, say so, and serve its tests if there are any."""
    exit_code, leave = 1, os._exit  # the code may replace what `os` holds
    try:
        module = types.ModuleType("solution" if has_tests else "__main__")
        sys.modules[module.__name__] = module
        exec(compile(code, "<solution>", "exec", dont_inherit=True), module.__dict__)
        flush()
        if has_tests:
            Served(module.__dict__, wire).serve()
        else:
            os.write(wire.writer, FINISHED)
        exit_code = 0
    except SystemExit as stop:
        flush()
        exit_code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        show(error, [])
    finally:
        flush()
        leave(exit_code & 0xFF)


class Served:
    """The names of the code, and those of its objects that the tests have been told of."""

    def __init__(self, names: dict[str, Any], wire: plain.Wire) -> None:
        self.names, self.wire = names, wire
        self.objects: list[Any] = []

    def serve(self) -> None:
        """Answer until the tests have gone."""
        while True:
            try:
                question = self.wire.receive()
            except plain.PeerGone:
                return
            try:
                answer = plain.write(self.answer(*plain.read(question, self.find)), self.stand_in)
            except BaseException as error:
                answer = plain.write(("error", described(error)), self.stand_in)
            flush()
            self.wire.send(answer)

    def answer(self, name: str, call: tuple[Any, Any] | None) -> tuple[str, Any]:
        """What a function returns, or what a name stands for."""
        if call is not None:
            arguments, named = call
            return "value", self.find(name)(*arguments, **named)
        if name not in self.names:
            return "missing", None
        return ("function", None) if callable(self.names[name]) else ("value", self.names[name])

    def find(self, key: int | str) -> Any:
        return self.names[key] if isinstance(key, str) else self.objects[key]

    def stand_in(self, value: Any) -> Any:
        """A subclass goes as what it is a subclass of, a number of numpy as Python's own."""
        kind = type(value)
        for base, convert in EXACT.items():
            if issubclass(kind, base):
                return convert(value)
        if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
            item = value.item()
            if type(item) in (bool, int, float, complex):
                return item
        self.objects.append(value)
        return plain.Opaque(len(self.objects) - 1)


def described(error: BaseException) -> tuple[str, str, tuple[tuple[str, int], ...]]:
    """The nearest class of Python's own, what it says, and where in the code it arose."""
    kind, frames, trace = type(error), [], error.__traceback__
    known = next(base for base in kind.__mro__ if vars(builtins).get(base.__name__) is base)
    said = str(error) if known is kind else f"{kind.__name__}: {error}"
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<solution>":
            frames.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    return known.__name__, said, tuple(frames[-FRAMES_SHOWN:])


def redirect_stdin(text: str) -> None:
    """A file, not a pipe: nobody must wait for code that does not read its input."""
    handle = os.open("stdin", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink("stdin")
    data = text.encode()
    while data:
        data = data[os.write(handle, data) :]
    os.lseek(handle, 0, os.SEEK_SET)
    os.dup2(handle, 0)
    os.close(handle)
