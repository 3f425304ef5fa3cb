"""Lines typed at a terminal: arrow keys, completion with Tab, and the lines of earlier talks."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HISTORY_LINES = 1000
#: What a line could go on with: the words that may stand there.
Words = Callable[[str], list[str]]


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
def line_editing(words: Words, complain: Callable[[str], None]) -> Iterator[None]:
    """Arrow keys, Ctrl-R and Tab on a terminal, and the lines of earlier talks."""
    try:
        import readline
    except ModuleNotFoundError:  # not every system has it: then lines are typed plainly
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    path = _history_file()
    readline.set_completer_delims(" ")

    def complete(text: str, state: int) -> str | None:
        found = [word for word in words(readline.get_line_buffer()) if word.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(HISTORY_LINES)
    with suppress(OSError):  # there is none yet, or it cannot be read: the talk begins without
        readline.read_history_file(path)
    try:
        yield
    finally:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)
            path.chmod(0o600)
        except OSError as error:
            complain(f"the history was not kept: {error}")


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "rho-eos" / "chat_history"
