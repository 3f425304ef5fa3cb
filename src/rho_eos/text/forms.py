"""What form an answer is to have, compiled to an automaton over a model's tokens.

    {"regex": …}, {"choices": […]}, {"schema": …} → a regular expression → an automaton

An expression may have more states than any machine can hold, so it is compiled in a process of its
own that the kernel ends when it takes too long or too much. What was compiled is kept.
"""

import io
import json
import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from rho_eos.base.errors import UserError
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.automaton import Automaton
from rho_eos.text.json_schema import escaped, json_regex
from rho_eos.text.prompts import Encoder
from rho_eos.text.user_text import is_whole

KINDS = ("regex", "choices", "schema")
SECONDS = 30
MEGABYTES = 1024
LONGEST_REGEX = 200_000  # characters
MOST_CHOICES = 10_000
KEPT = 64
AT_ONCE = 2  # expressions that are compiled at the same time
#: Where each class of tokens leads from each state, which states accept, each token's class.
Compiled = tuple[np.ndarray, np.ndarray, np.ndarray]


def regex_of(constraint: Mapping[str, Any]) -> str:
    """The regular expression that a constraint means.

    Args:
        constraint: One of `regex` (a text), `choices` (a list of texts) and `schema` (a JSON
            schema), under its name.
    """
    named = isinstance(constraint, Mapping) and len(constraint) == 1
    kind = next(iter(constraint)) if named else None
    if kind not in KINDS:
        raise UserError.of("constraint", constraint, f"exactly one of {', '.join(KINDS)}")
    given = constraint[kind]
    if kind == "schema":
        regex = json_regex(given)
    elif kind == "choices":
        regex = _any_of(given)
    elif not isinstance(given, str) or not given or not is_whole(given):
        raise UserError.of("regex", given, "a regular expression that is not empty")
    else:
        regex = _whole(given)
    if len(regex) > LONGEST_REGEX:
        sentence = f"the {kind} is a regular expression of {len(regex)} characters, which is more "
        raise UserError(f"{sentence}than the limit of {LONGEST_REGEX}", kind)
    return regex


def _any_of(choices: Any) -> str:
    good = isinstance(choices, list | tuple) and 0 < len(choices) <= MOST_CHOICES
    if not good or not all(isinstance(each, str) and is_whole(each) for each in choices):
        raise UserError.of("choices", choices, f"a list of 1 to {MOST_CHOICES} texts")
    return "|".join(escaped(each) for each in choices)


def _whole(regex: str) -> str:
    """An expression always means the whole answer, so anchors at its ends say nothing more."""
    start = 1 if regex.startswith("^") else 0
    backslashes = len(regex[:-1]) - len(regex[:-1].rstrip("\\"))
    end = len(regex) - (regex.endswith("$") and backslashes % 2 == 0)
    return regex[start:end]


class Forms:
    """Compiles constraints for one model, and keeps what was asked for last."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._kept: OrderedDict[str, Compiled] = OrderedDict()
        self._turn = threading.Lock()  # of what is kept
        self._compiling: dict[str, threading.Lock] = {}
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._pieces: tuple[np.ndarray, np.ndarray] | None = None

    def automaton(self, constraint: Mapping[str, Any], special: SpecialTokens) -> Automaton:
        """What the constraint accepts, with the ends of this request."""
        regex = regex_of(constraint)
        field = next(iter(constraint))
        with self._turn:
            own = self._compiling.setdefault(regex, threading.Lock())
        try:
            with own:  # who asks for the same meanwhile waits for it
                found = self._found(regex)
                if found is None:
                    with self._slots:
                        found = self._compiled(regex, field)
                    self._keep(regex, found)
        finally:
            with self._turn:
                self._compiling.pop(regex, None)
        automaton = Automaton.of(found, special.ends)
        if not automaton.accepting[:-1].any():
            raise _nothing(field)
        return automaton

    def _found(self, regex: str) -> Compiled | None:
        with self._turn:
            if regex in self._kept:
                self._kept.move_to_end(regex)
            return self._kept.get(regex)

    def _keep(self, regex: str, found: Compiled) -> None:
        with self._turn:
            self._kept[regex] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _compiled(self, regex: str, field: str) -> Compiled:
        if self._pieces is None:
            self._pieces = spelled(self.encoder)
        asked = io.BytesIO()
        data, lengths = self._pieces
        text = np.frombuffer(regex.encode(), dtype=np.uint8)
        np.savez(asked, regex=text, data=data, lengths=lengths)
        command = [sys.executable, "-P", "-m", "rho_eos.text.automaton_worker"]
        done = subprocess.run(
            [*command, str(SECONDS), str(MEGABYTES)],
            input=asked.getvalue(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            check=False,
        )
        answer = np.load(io.BytesIO(done.stdout)) if done.stdout else {"error": np.array("time")}
        if "error" not in answer:
            return answer["table"], answer["accepting"], answer["classes"]
        if str(answer["error"]) == "empty":
            raise _nothing(field)
        if str(answer["error"]) == "syntax":
            says = " ".join(str(answer["says"]).split())
            raise UserError(f"this {field} cannot be compiled: {says}", field)
        raise UserError(
            f"this {field} needs too many states: it did not compile within {SECONDS} seconds and "
            f"{MEGABYTES} MB; limit its repetitions, or make it simpler",
            field,
        )


def _nothing(field: str) -> UserError:
    return UserError(f"no text that this model's tokens spell is of this {field}", field)


def spelled(encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all tokens, one after the other, and how many each has; 0: it is no text."""
    tokenizer = encoder.tokenizer
    if tokenizer is None:
        raise UserError("this model has no tokenizer, so its answers cannot be constrained")
    if "ByteLevel" not in json.dumps(json.loads(tokenizer.backend_tokenizer.to_str())["decoder"]):
        raise UserError(
            "this model's tokenizer does not write bytes (ByteLevel), so its answers cannot be "
            "constrained"
        )
    pieces = [b""] * encoder.vocabulary
    for piece, token in tokenizer.get_vocab().items():
        letters = [_LETTERS.get(letter, -1) for letter in piece]
        if token < encoder.vocabulary and token not in encoder.texts.added and -1 not in letters:
            pieces[token] = bytes(letters)
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    return np.frombuffer(b"".join(pieces), dtype=np.uint8), lengths


def _byte_letters() -> dict[str, int]:
    """The letters that byte-level tokenizers write bytes with (GPT-2's)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    return letters | {chr(256 + number): byte for number, byte in enumerate(others)}


_LETTERS = _byte_letters()
