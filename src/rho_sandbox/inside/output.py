"""What a process of the sandbox shows of its end: its output, and the error that ended it."""

from __future__ import annotations

import contextlib
import sys
import types

FRAMES = "__frames_of_solution__"  # where an error keeps the places of the solution it came through


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def show(error: BaseException, tests: list[str]) -> None:
    """The traceback without the frames of the sandbox, then the test that was running."""
    flush()
    with contextlib.suppress(Exception):
        frames, trace = [], error.__traceback__
        while trace is not None:
            frames.append(trace)
            trace = trace.tb_next
        inside = __file__.rpartition("/")[0]
        running = 0
        for frame in reversed(frames):
            name = frame.tb_frame.f_code.co_filename
            if name == "<tests>" and not running:
                running = frame.tb_lineno
            if not name.startswith(inside):
                trace = types.TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        for function, line in vars(error).get(FRAMES, []):
            print(f"in the solution: line {line}, in {function}", file=sys.__stderr__)
        sys.__excepthook__(type(error), error.with_traceback(trace), trace)
        if running:
            print("in test:", tests[running - 1].strip(), file=sys.__stderr__)
    flush()
