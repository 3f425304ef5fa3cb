"""The process that compares mathematical answers with `math-verify`; started by `math_verifier`.

Reads one JSON pair of LaTeX texts a line, the reference and the answer, and prints 1 or 0 for
each. Its limits are of CPU time, so that a busy machine does not change a verdict: a pair that
takes too long is interrupted, and where it cannot be, inside one huge power, the process dies. An
alarm ends a process that waits for something, as the last resort.
"""

import json
import logging
import resource
import signal
import sys
from contextlib import suppress
from types import FrameType

MEMORY_BYTES = 4 << 30
CPU_SECONDS = 5
MORE_SECONDS = 2  # for code that does not listen to the interruption
PATIENCE_SECONDS = 300  # of the clock on the wall, also for the start


class OutOfTime(BaseException):
    """Not an `Exception`: math-verify catches those and goes on."""


def main() -> None:
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, interrupt)
    signal.alarm(PATIENCE_SECONDS)
    logging.disable()  # math-verify warns about every text it cannot read
    from math_verify import parse, verify

    signal.alarm(0)
    print("ready", flush=True)
    for line in sys.stdin:
        start_clock()
        try:
            gold, answer = (parse(text, parsing_timeout=None) for text in json.loads(line))
            equal = verify(gold, answer, timeout_seconds=None)
        except (OutOfTime, MemoryError, RecursionError):
            equal = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        print(int(equal), flush=True)


def start_clock() -> None:
    """From now on: an interruption when the time is up, and soon after it the end."""
    signal.alarm(PATIENCE_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    end = int(usage.ru_utime + usage.ru_stime) + CPU_SECONDS + MORE_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))


def interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise OutOfTime


if __name__ == "__main__":
    main()
