"""An answer in JSON as a template: the keys are given, each value is a gap.

    {"name": "░░░░░░░░", "age":░░░░, "lives":░░}

Numbers and enumerations are written from left to right within their gap, by tokens that can follow
there; strings freely. So an answer is valid by how it is made, and `write` turns the gaps into it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rho_eos.base.errors import UserError
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.text.ask import LogitsProcessor
from rho_eos.text.infilling import Template
from rho_eos.text.json_schema import MOST_DIGITS, Property
from rho_eos.text.prompts import Encoder

STRING, NUMBER = 8, 4  # MASKs that a gap starts with
LONGEST_VALUE = 64  # MASKs for each string and number, unless a request says how many in all


class Spelling:
    """Which tokens of a model spell numbers and blanks. Read once: a vocabulary is long."""

    def __init__(self, encoder: Encoder, special: SpecialTokens) -> None:
        tokenizer = encoder.tokenizer
        if tokenizer is None:
            raise UserError("this model has no tokenizer, so it cannot answer in JSON")
        self.special = special
        self.encode = encoder.texts.encode
        self.text: dict[int, str] = {}
        for token in range(min(encoder.vocabulary, len(tokenizer))):
            if token in encoder.texts.added:
                continue
            text = str(tokenizer.decode([token]))
            if re.fullmatch(r" +| ?-| ?[0-9]+|\.", text):
                self.text[token] = text
        self.blank = self._those(r" +")
        self.digits = self._those(r"[0-9]+")
        self.first_digits = self._those(r" ?[0-9]+")
        self.sign = self._those("-")
        self.first_sign = self._those(" ?-")
        self.point = self._those(r"\.")
        if not self.blank or not self.digits:
            raise UserError("this model's tokenizer has no tokens for digits or for a blank")

    def _those(self, pattern: str) -> list[int]:
        return [token for token, text in self.text.items() if re.fullmatch(pattern, text)]


class Form:
    """A template for one request, and how its gaps are filled and read."""

    def __init__(self, properties: Sequence[Property], spelling: Spelling, string: int) -> None:
        """`string`: how many MASKs a string starts with."""
        self.processors: list[LogitsProcessor] = []
        self.longest = 0  # of all gaps together, unless a request says how long they may be
        self._properties = properties
        texts: list[str] = []
        sizes: list[int | None] = []
        sized: set[int] = set()  # gaps whose length is known
        before = "{"
        for each in properties:
            before += f"{each.key}:"
            if len(each.options) == 1:
                before += f" {each.options[0]}, "
                continue
            gap, size, longest = len(sizes), string, LONGEST_VALUE
            if each.kind == "string":
                before += ' "'
            elif each.kind == "choice":
                options = [spelling.encode(f" {option}") for option in each.options]
                size = longest = max(map(len, options))
                self.processors.append(ChoiceGap(gap, spelling, options))
                sized.add(gap)
            else:
                size = NUMBER
                self.processors.append(NumberGap(gap, spelling, each.kind == "number"))
            texts.append(before)
            sizes.append(size)
            self.longest += max(size, longest)
            before = '", ' if each.kind == "string" else ", "
        texts.append(before.removesuffix(", ") + "}")
        pieces = [spelling.encode(text) for text in texts]
        pieces[-1].append(spelling.special.eos)
        self.template = Template(pieces, sizes, tuple(texts), frozenset(sized))

    def write(self, gaps: Sequence[str]) -> str:
        """The answer; a gap that was never reached counts as empty."""
        left = iter(gaps)
        members = []
        for each in self._properties:
            only = len(each.options) == 1
            value = each.options[0] if only else each.value(next(left, ""))
            members.append(f"{each.key}: {value}")
        return f"{{{', '.join(members)}}}"


class _Gap(ABC):
    """Restricts the tokens of one gap, from left to right.

    Behind a position that is still open nothing is decided: there all tokens are as good as equal,
    so that whatever a policy goes by, it goes for the positions before.
    """

    def __init__(self, gap: int, spelling: Spelling) -> None:
        self.gap = gap
        self.spelling = spelling

    def __call__(self, _id: str, canvas: Canvas, positions: Positions, logits: Any) -> Any:
        assert canvas.gaps is not None
        own = np.flatnonzero(canvas.gaps == self.gap)
        tokens = canvas.cells[own]
        is_open = tokens == self.spelling.special.mask
        first = int(np.argmax(is_open))
        for row in np.flatnonzero(np.isin(positions, own[is_open])):
            at = int(np.searchsorted(own, positions[row]))
            decided = at == first
            allowed = self.allowed(tokens, at, decided)
            decided = decided or len(allowed) == 1
            index = torch.as_tensor(allowed, device=logits.device)
            kept = logits[row, index] if decided else 0.01
            logits[row] = -torch.inf if decided else 0.0
            logits[row, index] = kept
        return logits

    @abstractmethod
    def allowed(self, tokens: np.ndarray, at: int, decided: bool) -> list[int]:
        """The tokens that may stand at place `at` of the gap. `decided`: all places before it have
        their token."""


class NumberGap(_Gap):
    """A gap for a number. Blanks around it are JSON, too, so it may be shorter than its gap."""

    def __init__(self, gap: int, spelling: Spelling, fraction: bool) -> None:
        super().__init__(gap, spelling)
        self.fraction = fraction

    def allowed(self, tokens: np.ndarray, at: int, decided: bool) -> list[int]:
        spelling = self.spelling
        if not decided:
            return spelling.digits
        text = "".join(spelling.text.get(token, "") for token in tokens[:at].tolist())
        number = text.lstrip()
        room = at < len(tokens) - 1
        if not number:
            begun = bool(text)
            sign = spelling.sign if begun else spelling.first_sign
            blank = [] if begun else spelling.blank
            digits = spelling.digits if begun else spelling.first_digits
            return [*digits, *(sign if room else []), *(blank if room else [])]
        if number.endswith(" ") or len(number) > MOST_DIGITS:
            return spelling.blank
        if not number[-1].isdigit():
            return spelling.digits
        point = spelling.point if self.fraction and room and "." not in number else []
        return [*spelling.digits, *point, *spelling.blank]


class ChoiceGap(_Gap):
    """One of several texts, with blanks behind where another one is longer."""

    def __init__(self, gap: int, spelling: Spelling, options: Sequence[Sequence[int]]) -> None:
        super().__init__(gap, spelling)
        size = max(map(len, options))
        self.options = np.array([[*each, *[-1] * (size - len(each))] for each in options])

    def allowed(self, tokens: np.ndarray, at: int, decided: bool) -> list[int]:  # noqa: ARG002
        known = tokens != self.spelling.special.mask
        blank = (self.options == -1) & np.isin(tokens, self.spelling.blank)
        fits = ((self.options == tokens) | blank)[:, known].all(axis=1)
        there = np.unique((self.options[fits] if fits.any() else self.options)[:, at]).tolist()
        if -1 in there:
            return [*(token for token in there if token >= 0), *self.spelling.blank]
        return list(there)
