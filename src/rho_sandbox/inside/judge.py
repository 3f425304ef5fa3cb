"""The process that runs the tests. The untrusted code is in another one, and only sends values.

Whatever that code does to its own interpreter, its files or its end of the wire, this process
decides with its own. It reports a pass on a pipe that the other never had.
"""

from __future__ import annotations

import _symtable  # type: ignore[import-not-found]
import builtins
import os
import sys
import types

from .operations import permit_outsider
from .output import flush, show
from .peer import Peer, PeerGone, Wire
from .wire import BrokenWire

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from typing import Any, NoReturn

PASSED = b"passed"
SOLUTION_GONE = 124  # the exit status that says: ask the other process why
MODULE = "tests"


class Names(dict[str, "Any"]):
    """The builtins of the tests; what they neither define nor import is the solution's.

    A builtin stays what it is: a solution must not bring its own `abs`. Unless the tests name
    nothing else, because then the function under test is called like a builtin.
    """

    def __init__(self, peer: Peer, tests: str) -> None:
        super().__init__(vars(builtins))
        self._peer = peer
        named = free_names(tests)
        self._first = named if named <= self.keys() else set()

    def __getitem__(self, name: str) -> Any:
        if name in self._first:
            try:
                return self._peer.request("name", name)
            except KeyError:
                self._first.discard(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Any:
        if name.startswith("__"):
            raise KeyError(name)
        return self._peer.request("name", name)


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


def judge(tests: str, wire: Wire, verdict: int) -> NoReturn:
    """Run the tests to their end, and only then say that they passed."""
    exit_code = 1
    peer = Peer(wire, permit=permit_outsider, before_answer=flush)
    try:
        program = compile(tests, "<tests>", "exec", dont_inherit=True)
        peer.request("ready")
        module = sys.modules[MODULE] = types.ModuleType(MODULE)
        vars(module)["__builtins__"] = Names(peer, tests)
        exec(program, vars(module))
        flush()
        if peer.failed is not None:
            raise peer.failed
        if peer.broken is None:
            os.write(verdict, PASSED)
            exit_code = 0
    except PeerGone:
        exit_code = SOLUTION_GONE
    except SystemExit as stop:
        flush()
        exit_code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BrokenWire as error:
        print(f"the solution broke off: {error}", file=sys.stderr)
    except BaseException as error:
        show(error, tests.splitlines())
    finally:
        flush()
        os._exit(exit_code & 0xFF)
