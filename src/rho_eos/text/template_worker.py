"""Renders chat templates in a process of its own, within bounds; `chat_template` runs it.

A template comes with a checkpoint: it may loop for ever, or ask for all memory in one expression,
which no step limit within an interpreter would see. Here the kernel ends both. Each line is a JSON
object: a conversation comes in, its text or what went wrong goes out.
"""

import gc
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

START_SECONDS = 120  # on a machine that is very busy


def main(seconds: int, megabytes: int, longest: int) -> None:
    # The alarm ends the process, whatever whoever started it does with such a signal.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.alarm(START_SECONDS)
    gc.disable()  # what an import makes stays
    from transformers.utils.chat_template_utils import render_jinja_template

    gc.enable()
    answers, sys.stdout = sys.stdout, sys.stderr
    limit_memory(megabytes)
    signal.alarm(0)
    for line in sys.stdin:
        signal.alarm(seconds)
        try:
            (text,), _ = render_jinja_template(**json.loads(line))
            if len(text) > longest:
                raise MemoryError
            answer(answers, {"text": text})
        except BaseException as error:
            kind = "memory" if isinstance(error, MemoryError) else type(error).__name__
            refused = any(base.__name__ == "TemplateError" for base in type(error).__mro__)
            answer(answers, {"error": kind, "refused": refused, "says": str(error)[:500]})
        signal.alarm(0)


def answer(to: TextIO, content: dict[str, Any]) -> None:
    to.write(json.dumps(content) + "\n")
    to.flush()


def limit_memory(megabytes: int) -> None:
    """Allow the process so much memory beyond what it has mapped by now."""
    try:
        import resource

        status = Path("/proc/self/status").read_text(encoding="ascii")
    except (ImportError, OSError):  # no Linux: only time is bounded there
        return
    found = re.search(r"VmSize:\s+(\d+) kB", status)
    assert found is not None
    most = int(found[1]) * 1024 + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
