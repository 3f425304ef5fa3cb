"""The process of the untrusted code: runs it, then does with its objects what its tests ask for.

Nothing here is believed. The code can replace every function of this process, read all its memory
and write whatever it likes to the wire; it knows neither the tests nor whether they passed.
"""

# ruff: noqa: PTH108
# pathlib would take longer to import than this file to run, and it is imported for every run.

from __future__ import annotations

import os
import sys
import types

from .operations import OPERATIONS
from .output import flush, show
from .peer import Peer, Wire

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from typing import NoReturn

FINISHED = b"finished"


def work(code: str, has_tests: bool, wire: Wire) -> NoReturn:
    """Run the code to its end, say so, and serve its tests if there are any."""
    exit_code, leave = 1, os._exit  # the code may replace what `os` holds
    try:
        module = types.ModuleType("solution" if has_tests else "__main__")
        sys.modules[module.__name__] = module
        exec(compile(code, "<solution>", "exec", dont_inherit=True), module.__dict__)
        flush()
        if has_tests:
            operations = OPERATIONS | {"ready": bool, "name": module.__dict__.__getitem__}
            Peer(wire, operations, before_answer=flush).serve()
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
