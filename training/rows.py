"""Training rows: what the model is shown, and what it must say where.

A **canvas row** is what decoding shows: prompt, then the canvas with every position seeing every
other. Its MASKs follow the states a decode passes through: all MASK, or a finished prefix with one
block half filled and MASKs after it; some rows mask at a uniform ratio, as LLaDA's training does.
Canvases are padded with EOS to random lengths, so that a predicted EOS means "space left", and a
few are cut off, so that a canvas that is too short is filled with the beginning of the answer.

In a canvas row most positions are unpredictable, so it teaches little. A **two-stream row** teaches
at every position: prompt and answer in clear, then a second, masked copy of the answer at the same
positions. In blocks of b tokens, clean text sees clean text up to its own block, and a masked block
sees the clean blocks before it and itself. b = 1 is next-token prediction without the shift; there
the copy leaves out most words, which are easy.

A **drill row** is a two-stream row of bare equations of which only the results are asked for: facts
of arithmetic are too rare in the answers to be learned from them in little time. A **lookup row**
is one of numbered random words, to be said again item by item with other words in between: what
cannot be guessed must be looked up by its label, and where the labels end, so does the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from transformers import PreTrainedTokenizerBase

from rho_problems.arithmetic import HEADS
from rho_problems.problem import Problem
from rho_problems.tokenizer import SPECIAL

BLOCK = 32  # what decoding fills at a time
LONGEST_CANVAS = 512
LONGEST_ROW = 640
NO_TARGET = -100
# Weights of what is asked for, in the block being filled (near) and beyond it (far), where most of
# the text cannot be known yet. What starts a line says whether the answer goes on or ends; what
# follows a label must be looked up in the prompt.
NEAR = {"content": 1.0, "lookup": 2.0, "start": 3.0, "eos": 0.3, "first_eos": 1.0}
FAR = {"content": 0.08, "lookup": 0.08, "start": 0.3, "eos": 0.06, "first_eos": 0.3}
BYTES_AND_SPECIAL = 256 + len(SPECIAL)  # come first in the vocabulary
LOOKUP = 3  # so many tokens after a label are looked up
ANYWHERE, ANYWHERE_EOS = 0.6, 0.1  # where the ratio of MASKs is uniform
DRILLS = 20  # equations per drill row
WORDS_ASKED = 0.3  # share of words that next-token rows ask for, beside all numbers

Ints = np.ndarray
Floats = np.ndarray


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence. `stream` is 1 for the masked copy; `block` orders what may see what."""

    ids: Ints
    positions: Ints
    stream: Ints
    block: Ints
    targets: Ints
    weights: Floats
    kind: Kind
    task: int = 0

    def __len__(self) -> int:
        return len(self.ids)


class Kind(IntEnum):
    """Told apart in the log, and in when to go on to harder problems."""

    NEXT_TOKEN = 0
    BLOCKS = 1
    CANVAS = 2
    DRILL = 3
    LOOKUP = 4


class RowMaker:
    """Turns problems into rows, drawing masks and lengths from one random generator."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> None:
        self.tokenizer = tokenizer
        self.rng = rng
        self.mask: int = tokenizer.mask_token_id
        self.eos: int = tokenizer.eos_token_id
        self.is_number = np.zeros(len(tokenizer), bool)
        self.is_line_break = np.zeros(len(tokenizer), bool)
        self.is_label = np.zeros(len(tokenizer), bool)
        for piece, index in tokenizer.get_vocab().items():
            self.is_number[index] = piece.lstrip("Ġ").isdigit()
            self.is_line_break[index] = piece.startswith("Ċ")
            self.is_label[index] = piece[-1] == ")" and piece[:-1].isdigit()
        self.labels = np.flatnonzero(self.is_label)
        is_word = ~(self.is_label | self.is_line_break)
        is_word[:BYTES_AND_SPECIAL] = False
        self.words = np.flatnonzero(is_word)
        self.line_break, self.space, self.end = (
            tokenizer.convert_tokens_to_ids(piece) for piece in ("Ċ", "Ġ", "####")
        )
        self.equals: int = tokenizer.convert_tokens_to_ids("Ġ=")
        self.facts = [
            np.array([tokenizer.encode(form.format(*fact)) for fact in facts()])
            for form in (" {} {} {} = {}\n", " ({} {} {}) = {}\n")
        ]

    def encode(self, problem: Problem) -> tuple[Ints, Ints]:
        """Prompt (through the chat template) and answer as ids."""
        return self.encode_prompt(problem.prompt), self.encode_text(problem.answer)

    def encode_prompt(self, prompt: str) -> Ints:
        message = {"role": "user", "content": prompt}
        text = self.tokenizer.apply_chat_template(
            [message], add_generation_prompt=True, tokenize=False
        )
        return self.encode_text(text)

    def encode_text(self, text: str) -> Ints:
        return np.array(self.tokenizer.encode(text, add_special_tokens=False))

    def canvas_row(self, prompt: Ints, answer: Ints, task: int = 0) -> Row:
        """On a canvas of a random length, now and then too short for the answer."""
        return self.row_on_canvas(prompt, answer, self.canvas_length(len(answer)), task)

    def row_on_canvas(
        self, prompt: Ints, answer: Ints, length: int, task: int = 0, fresh: float = 0.15
    ) -> Row:
        """On a canvas of this length; `fresh` is the share of canvases that are all MASK."""
        canvas = np.full(length, self.eos)
        canvas[: len(answer)] = answer[:length]
        near = self.weights(canvas, **NEAR)
        weights = self.weights(canvas, **FAR)
        hidden = np.ones(length, bool)
        kind = self.rng.random()
        if kind < 0.85:
            blocks = min(len(answer), length - 1) // BLOCK + 1
            start = 0 if kind < fresh else int(self.rng.integers(blocks)) * BLOCK
            end = min(length, start + BLOCK)
            hidden[:start] = False
            if kind >= fresh:
                hidden[start:end] = self.still_hidden(canvas[start:end])
            weights[start:end] = near[start:end]
        else:
            hidden = self.rng.random(length) < self.rng.random()
            hidden[self.rng.integers(length)] = True
            weights = np.where(canvas == self.eos, ANYWHERE_EOS, ANYWHERE)
        ids = np.concatenate([prompt, np.where(hidden, self.mask, canvas)])
        zeros = np.zeros(len(ids), int)
        return Row(
            ids=ids,
            positions=np.arange(len(ids)),
            stream=zeros,
            block=zeros,
            targets=np.concatenate(
                [np.full(len(prompt), NO_TARGET), np.where(hidden, canvas, NO_TARGET)]
            ),
            weights=np.concatenate([np.zeros(len(prompt)), weights]),
            kind=Kind.CANVAS,
            task=task,
        )

    def two_stream_row(self, prompt: Ints, answer: Ints, block: int, task: int = 0) -> Row:
        """The masked copy is cut to some of its blocks where the row would grow too long."""
        padding = int(self.rng.integers(1, max(block, 4) + 1))
        answer = np.concatenate([answer, np.full(padding, self.eos)])
        clean = len(prompt) + len(answer)
        room = max(1, (LONGEST_ROW - clean) // block) * block
        start = 0
        if room < len(answer):
            start = int(self.rng.integers((len(answer) - room) // block + 1)) * block
        end = min(len(answer), start + room)
        hidden = np.ones(len(answer), bool)
        for first in range(start, end, block) if block > 1 else ():
            span = slice(first, min(first + block, len(answer)))
            if self.rng.random() < 0.8:
                hidden[span] = self.still_hidden(answer[span])
        copied = np.arange(start, end)
        if block == 1:
            asked = self.rng.random(len(answer)) < WORDS_ASKED
            asked |= self.is_number[answer] | self._starts(answer) | self._lookups(answer)
            asked[start] = True
            copied = copied[asked[start:end]]
        kind = Kind.NEXT_TOKEN if block == 1 else Kind.BLOCKS
        return self._two_streams(prompt, answer, block, hidden, copied, kind, task)

    def drill_row(self) -> Row:
        """Random equations, bare or with a bracket; only the results are asked for."""
        facts = self.facts[self.rng.integers(len(self.facts))]
        text = facts[self.rng.integers(len(facts), size=DRILLS)].ravel()
        results = np.flatnonzero(text == self.equals) + 1
        hidden = np.ones(len(text), bool)
        nothing = np.zeros(0, int)
        row = self._two_streams(nothing, text, 1, hidden, results, Kind.DRILL, 0)
        return replace(row, positions=row.positions + self.rng.integers(300))

    def lookup_row(self) -> Row:
        """Numbered random words, to be found again by their labels."""
        separator = self.rng.choice([self.line_break, self.space])
        prompt: list[int] = []
        answer: list[int] = []
        asked: list[bool] = []
        for label in self.labels[: self.rng.integers(1, len(self.labels) + 1)]:
            item = [label, *self._random_words(1, 4)]
            between = self._random_words(0, 10)
            prompt += [separator, *item]
            answer += [*item, *between, self.line_break]
            asked += [True] * len(item) + [False] * (len(between) + 1)
        row = self._two_streams(
            np.array(prompt),
            np.array([*answer, self.end]),
            1,
            np.ones(len(answer) + 1, bool),
            np.flatnonzero([*asked, True]),
            Kind.LOOKUP,
            0,
        )
        return replace(row, positions=row.positions + self.rng.integers(50))

    def _random_words(self, least: int, most: int) -> Ints:
        return self.rng.choice(self.words, self.rng.integers(least, most + 1))

    def _two_streams(
        self,
        prompt: Ints,
        answer: Ints,
        block: int,
        hidden: np.ndarray,
        copied: Ints,
        kind: Kind,
        task: int,
    ) -> Row:
        clean = len(prompt) + len(answer)
        blocks = np.concatenate([np.zeros(len(prompt), int), np.arange(len(answer)) // block + 1])
        positions = np.arange(clean)
        second = len(prompt) + copied
        weights = self.weights(answer, **NEAR)
        return Row(
            ids=np.concatenate([prompt, answer, np.where(hidden, self.mask, answer)[copied]]),
            positions=np.concatenate([positions, positions[second]]),
            stream=np.concatenate([np.zeros(clean, int), np.ones(len(copied), int)]),
            block=np.concatenate([blocks, blocks[second]]),
            targets=np.concatenate(
                [np.full(clean, NO_TARGET), np.where(hidden, answer, NO_TARGET)[copied]]
            ),
            weights=np.concatenate([np.zeros(clean), weights[copied]]),
            kind=kind,
            task=task,
        )

    def _starts(self, text: Ints) -> np.ndarray:
        """Whether a position starts a line."""
        starts = np.zeros(len(text), bool)
        starts[1:] = self.is_line_break[text[:-1]]
        return starts

    def _lookups(self, text: Ints) -> np.ndarray:
        """Whether a position follows a label closely."""
        labels = self.is_label[text]
        lookups = np.zeros(len(text), bool)
        for distance in range(1, LOOKUP + 1):
            lookups[distance:] |= labels[:-distance]
        return lookups

    def weights(
        self,
        text: Ints,
        *,
        content: float,
        lookup: float,
        start: float,
        eos: float,
        first_eos: float,
    ) -> Floats:
        weights = np.where(self._lookups(text), lookup, content)
        weights[self._starts(text)] = start
        is_eos = text == self.eos
        weights[is_eos] = eos
        weights[is_eos.argmax()] = first_eos if is_eos.any() else weights[0]
        return weights

    def canvas_length(self, answer: int) -> int:
        """Mostly long enough, sometimes too short."""
        if self.rng.random() < 0.10 and answer > 10:
            return int(self.rng.integers(8, answer + 1))
        return self.roomy_length(answer)

    def roomy_length(self, answer: int) -> int:
        """Mostly tight, which is cheap; sometimes far too long."""
        kind = self.rng.random()
        if kind < 0.67:
            spare = self.rng.integers(32)
        elif kind < 0.91:
            spare = self.rng.integers(answer + 64)
        else:
            spare = self.rng.integers(LONGEST_CANVAS - answer)
        return min(LONGEST_CANVAS, answer + 1 + int(spare))

    def still_hidden(self, tokens: Ints) -> np.ndarray:
        """Which positions of a block a decode has not filled yet.

        Decoding fills what is easy first: template words before numbers, left before right. How
        much of each is random, so that every order is met.
        """
        noise, left, words = self.rng.random(3)
        late = (
            noise * self.rng.random(len(tokens))
            + left * np.arange(len(tokens)) / len(tokens)
            + 0.7 * words * self.is_number[tokens]
        )
        hidden = np.ones(len(tokens), bool)
        hidden[np.argsort(late)[: int(self.rng.integers(len(tokens)))]] = False
        return hidden


def facts() -> list[tuple[int, str, int, int]]:
    """Every equation that an answer to a word problem or an expression may contain."""
    found = {(a, "+", b, a + b) for a in range(41) for b in range(1, 10) if a + b <= 40}
    found |= {(a, "-", b, a - b) for a in range(41) for b in range(1, 10) if a >= b}
    found |= {(a, "-", b, a - b) for a in HEADS for b in range(1, 13) if 1 <= a - b <= 9}
    found |= {(a, "*", b, a * b) for a in range(14) for b in (2, 3)}
    found |= {(a, "*", b, a * b) for a in range(1, 10) for b in range(1, 10) if a * b <= 9}
    return sorted(found)
