"""A command on a pseudo-terminal: what is typed, and what stands on the screen afterwards."""

import os
import pty
import select
import time
from pathlib import Path

import pyte

from tests.forks import Fork

DEADLINE = 120


class Terminal:
    """`python …` on a screen of so many columns and lines."""

    def __init__(self, *words: object, columns: int = 80, lines: int = 24, home: Path) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=1000, ratio=1)
        self._stream = pyte.ByteStream(self.screen)
        self._leader, follower = pty.openpty()
        environment = os.environ | {
            "TERM": "xterm-256color",
            "COLUMNS": str(columns),
            "LINES": str(lines),
            "XDG_STATE_HOME": str(home),
        }
        self.process = Fork(
            *words,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment,
            start_new_session=True,
        )
        os.close(follower)
        self.raw = b""

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until the text was printed so often."""
        deadline = time.monotonic() + DEADLINE
        while self.raw.decode(errors="replace").count(text) < times:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.shown()}"
            assert self._read(1.0), f"it ended without {text!r}:\n{self.shown()}"

    def wait_until_shown(self, text: str) -> None:
        """Until it stands on the screen, whatever control sequences drew it."""
        deadline = time.monotonic() + DEADLINE
        while text not in self.shown():
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.shown()}"
            assert self._read(1.0), f"it ended without {text!r}:\n{self.shown()}"

    def wait(self) -> int:
        """Its exit code, with everything read."""
        while self._read(DEADLINE):
            pass
        os.close(self._leader)
        return self.process.wait(timeout=DEADLINE)

    def shown(self) -> str:
        """All lines, those that were scrolled away too."""
        gone = [
            "".join(line[column].data for column in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        ]
        return "\n".join([*gone, *(line.rstrip() for line in self.screen.display)])

    def _read(self, seconds: float) -> bool:
        """False: the other side is closed."""
        if not select.select([self._leader], [], [], seconds)[0]:
            return self.process.poll() is None
        try:
            chunk = os.read(self._leader, 65536)
        except OSError:
            return False
        self.raw += chunk
        self._stream.feed(chunk)
        return bool(chunk)
