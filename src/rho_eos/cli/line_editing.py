"""Lines typed at a terminal: arrow keys, and the lines of earlier talks."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rho_eos.views.announced import say

HISTORY_LINES = 1000
QUOTES = '"""'


def read_message() -> str | None:
    """What is said next; None at the end of the input. Ctrl-C gives up the message, not the talk.

    A line that ends with a backslash goes on in the next one, and what stands between two lines
    with three quotation marks is one text. What is pasted is one text anyway.
    """
    while True:
        try:
            return _whole_message()
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            print()


def _whole_message() -> str:
    line = _line("› ")
    if not line.lstrip().startswith(QUOTES):
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{_line('… ')}"
        return line
    text = line.lstrip().removeprefix(QUOTES)
    while not text.endswith(QUOTES):
        text += f"\n{_line('… ')}"
    return f" {text.removesuffix(QUOTES)}"  # with a blank before it, it is no command


def _line(prompt: str) -> str:
    return input(prompt if sys.stdin.isatty() else "").rstrip()


@contextmanager
def line_editing() -> Iterator[None]:
    """Arrow keys and Ctrl-R on a terminal, also for the lines of earlier talks."""
    with suppress(ModuleNotFoundError):  # not every system has it: then lines are typed plainly
        import readline
    if "readline" not in sys.modules or not sys.stdin.isatty():
        yield
        return

    readline.set_history_length(HISTORY_LINES)
    readline.parse_and_bind("set enable-bracketed-paste on")  # Python turns it off
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
