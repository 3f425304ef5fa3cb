"""Are two mathematical answers equal? `math-verify` decides, in a process of its own.

The time limit of math-verify itself is an alarm, which works in a main thread only, counts the time
that other programs take, and cannot stop a large power once sympy computes it. Here any thread may
ask, and a comparison that hangs, crashes or eats memory counts as unequal and costs a new process.
Where somebody else has ended the worker, nothing is known of its pair, which is asked again.
"""

import atexit
import json
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec

from rho_eos.base.errors import UserError, needs_extra

ATTEMPTS = 3  # for a pair whose worker dies: it may have been the pair
#: How a worker ends when a pair has taken too long.
OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGALRM)


class MathVerifier:
    """A worker process, started when first needed and again after it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def equal(self, gold: str, answer: str) -> bool:
        """Whether two LaTeX texts, each holding one result, mean the same."""
        with self._lock:
            for _ in range(ATTEMPTS):
                process = self._process or self._start()
                assert process.stdin is not None
                with suppress(BrokenPipeError):  # a worker that has died has no reply either
                    print(json.dumps([gold, answer]), file=process.stdin, flush=True)
                if reply := self._read(process):
                    return reply == "1"
                if self._stop() in OUT_OF_TIME:
                    break
            return False

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _start(self) -> subprocess.Popen[str]:
        if find_spec("math_verify") is None:
            raise needs_extra("grading mathematics", "math-verify", "eval")
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "rho_eos.evals.graders.math_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            start_new_session=True,  # or Ctrl-C would kill it first, and that is a wrong answer
        )
        if self._read(process) != "ready":
            self._stop()
            raise UserError(
                "math-verify does not start: try `python -m rho_eos.evals.graders.math_worker`"
            )
        return process

    def _read(self, process: subprocess.Popen[str]) -> str:
        """The worker's next line, nothing if it has died. Its own limits end it when it hangs."""
        assert process.stdout is not None
        line = process.stdout.readline()
        return line.strip() if line.endswith("\n") else ""

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
