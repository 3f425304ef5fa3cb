"""A checkpoint's chat template applied to messages: in another process, in bounded time and memory.

The embedded model's own template is rendered here, and so costs no process.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_problems.tokenizer import CHAT_TEMPLATE

SECONDS = 5
MEGABYTES = 256
LONGEST = 16 * 2**20  # characters of a rendered conversation
_WORKER = Path(__file__).with_name("template_worker.py")
_WHAT = "the model's chat template"


def render(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
) -> str:
    """The text of a conversation, or a sentence that says why there is none."""
    how = {
        "add_generation_prompt": add_generation_prompt,
        "continue_final_message": continue_final_message,
    }
    try:
        template = tokenizer.get_chat_template()
    except Exception as error:  # several templates, none of them the default
        raise UserError(f"{_WHAT} cannot be used: {error}") from error
    if not isinstance(template, str):
        raise UserError(f"{_WHAT} is no text but a {type(template).__name__}")
    if template == CHAT_TEMPLATE:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, **how))
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
    own = getattr(tokenizer, "template_variables", {})  # what its family of models sets
    asked = {"conversations": [list(messages)], "chat_template": template, **own, **how, **special}
    answer = _worker.ask(json.dumps(asked, default=_placeholder))
    if not answer.get("text"):
        raise UserError(_sentence(answer))
    return str(answer["text"])


def start(tokenizer: Any) -> None:
    """Start the process now, if this tokenizer will need it: that takes a second."""
    template = getattr(tokenizer, "chat_template", None)
    if template is not None and template != CHAT_TEMPLATE:
        _worker.start()


def _sentence(answer: dict[str, Any]) -> str:
    if answer.get("refused"):  # some templates insist on turns that alternate, or on roles
        return f"{_WHAT} refuses these messages: {answer['says']}"
    if "error" not in answer:
        return f"{_WHAT} makes no text of these messages"
    if answer["error"] == "memory":
        return f"{_WHAT} makes more text, or needs more memory, than the limit of {MEGABYTES} MB"
    return f"{_WHAT} fails: {answer['error']}: {answer['says']}"


def _placeholder(value: Any) -> str:
    return f"<{type(value).__name__}>"


class _Worker:
    """The process, one for all templates; begun anew after it had to be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self) -> None:
        with self._lock:
            self._start()

    def ask(self, line: str) -> dict[str, Any]:
        with self._lock:
            process = self._start()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()
                answer = process.stdout.readline(8 * LONGEST)
                if answer.endswith(b"\n"):
                    return dict(json.loads(answer))
                late = process.wait(1) == -signal.SIGALRM
            except (OSError, ValueError, subprocess.TimeoutExpired):
                late = False
            except BaseException:  # an interrupt: what it would still say is nobody's answer
                self._end()
                raise
            self._end()
        if late:
            raise UserError(f"{_WHAT} did not come to an end within {SECONDS} seconds")
        raise UserError(
            f"{_WHAT} could not be rendered: its process ended, or wrote more than {LONGEST} "
            "characters"
        )

    def _start(self) -> "subprocess.Popen[bytes]":
        if self._owner != os.getpid():  # a fork of the process that started it
            self._process, self._owner = None, os.getpid()
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                # -P: the folder of the script, which is ours, holds modules named as others.
                [sys.executable, "-P", str(_WORKER), *map(str, (SECONDS, MEGABYTES, LONGEST))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
            atexit.register(self._end)
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        atexit.unregister(self._end)
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


_worker = _Worker()
