"""Are two mathematical answers equal? `math-verify` decides, in a process of its own.

Its own time limit is an alarm, which works in a main thread only, counts the time that other
programs take, and cannot stop a large power once sympy computes it. Here any thread may ask, and
a comparison that hangs, crashes or eats memory counts as unequal and costs at most a new process.
A worker that somebody else ended says nothing about the pair it was at: that is asked again.
"""

import atexit
import json
import selectors
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec

from rho_eos.base.errors import UserError, needs_extra

ATTEMPTS = 3  # for a pair whose worker dies: it may have been the pair
PATIENCE_SECONDS = 300.0  # the worker has limits of its own, of CPU time; this is the last resort


class MathVerifier:
    """A worker process, started when first needed and again after it had to be killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._known: dict[tuple[str, str], bool] = {}

    def equal(self, gold: str, answer: str) -> bool:
        """Whether two LaTeX texts, each holding one result, mean the same."""
        with self._lock:
            if (gold, answer) not in self._known:
                self._known[gold, answer] = self._compare(gold, answer)
            return self._known[gold, answer]

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _compare(self, gold: str, answer: str) -> bool:
        for _ in range(ATTEMPTS):
            try:
                reply = self._ask(gold, answer)
            except TimeoutError:
                self._stop()
                return False
            if reply is not None:
                return reply == "1"
            if self._stop() == -signal.SIGXCPU:  # its own limit: the pair took too long
                return False
        return False

    def _ask(self, gold: str, answer: str) -> str | None:
        """The worker's reply; None if it has died."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        return self._read_line(process, PATIENCE_SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        if find_spec("math_verify") is None:
            raise needs_extra("grading mathematics", "math-verify", "eval")
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "rho_eos.evals.graders.math_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # or Ctrl-C would kill it first, and that is a wrong answer
        )
        try:
            ready = self._read_line(process, PATIENCE_SECONDS) == "ready"
        except TimeoutError:
            ready = False
        if not ready:
            self._stop()
            raise UserError(
                "math-verify does not start: try `python -m rho_eos.evals.graders.math_worker`"
            )
        return process

    def _read_line(self, process: subprocess.Popen[bytes], seconds: float) -> str | None:
        """The worker's next line; None if the worker has died."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise TimeoutError
        line = process.stdout.readline()
        return line.decode().strip() if line.endswith(b"\n") else None

    def _stop(self) -> int | None:
        """End the worker; how it ended, which may have been before."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.kill()
        with suppress(BrokenPipeError):  # what it never read
            process.communicate()
        return process.returncode


verifier = MathVerifier()
atexit.register(verifier.close)
