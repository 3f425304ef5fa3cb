"""Lines typed at a terminal: arrow keys, and the lines of earlier talks."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rho_eos.views.announced import say

HISTORY_LINES = 1000


def read_line() -> str | None:
    """The next line; None at the end of the input. Ctrl-C gives up the line, not the talk."""
    while True:
        try:
            return input("› " if sys.stdin.isatty() else "").rstrip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            print()


@contextmanager
def line_editing() -> Iterator[None]:
    """Arrow keys and Ctrl-R on a terminal, also for the lines of earlier talks."""
    with suppress(ModuleNotFoundError):  # not every system has it: then lines are typed plainly
        import readline
    if "readline" not in sys.modules or not sys.stdin.isatty():
        yield
        return

    readline.set_history_length(HISTORY_LINES)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    history = Path(state) / "rho-eos" / "chat_history"
    with suppress(OSError):  # there is none yet, or it cannot be read: the talk begins without
        readline.read_history_file(history)
    try:
        yield
    finally:
        try:
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)
            history.chmod(0o600)
        except OSError as error:
            say(f"the history was not kept: {error}")
