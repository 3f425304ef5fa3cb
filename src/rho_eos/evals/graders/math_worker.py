"""The process that compares mathematical answers with `math-verify`; started by `math_verifier`.

It reads one JSON pair of LaTeX texts a line, the reference and the answer, and prints 1 or 0 for
each. A pair that takes too long ends the process, since nothing else interrupts the computation of
one huge power. What counts is CPU time, so that a busy machine does not change a verdict; an alarm
ends a process that waits for something, as the last resort.
"""

import json
import logging
import resource
import signal
import sys
from contextlib import suppress

MEMORY_BYTES = 4 << 30
CPU_SECONDS = 5
PATIENCE_SECONDS = 300  # of the clock on the wall, also for the start


def main() -> None:
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
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
        except (MemoryError, RecursionError):
            equal = False
        signal.alarm(0)
        print(int(equal), flush=True)


def start_clock() -> None:
    """The process ends when this pair has taken its time."""
    signal.alarm(PATIENCE_SECONDS)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    end = int(usage.ru_utime + usage.ru_stime) + 1 + CPU_SECONDS  # whole seconds, rounded up
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
