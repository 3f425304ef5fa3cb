"""A canvas whose text has to have a form: what fits on it, and which edits keep it so."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rho_eos.decoding.automaton import NOWHERE, Automaton
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.chain import Cells, Chain
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Blockwise, Policy


@dataclass(frozen=True, eq=False)
class Form:
    """What one request's text has to be.

    Args:
        automaton: Accepts the texts of the form.
        params: The request's parameters, for the lengths that they allow.
        grows: Whether the policy may append MASKs. Then a text may go on behind the canvas, as far
            as `max_new_tokens` leaves room: otherwise a canvas that is still too short would make
            its end look certain, and the end would be written there.
        by_blocks: Whether it does so whenever a block is full.
    """

    automaton: Automaton
    params: DecodeParams
    grows: bool
    by_blocks: bool

    @classmethod
    def of(cls, automaton: Automaton, params: DecodeParams, policy: type[Policy]) -> "Form":
        grows = Append in policy.edits
        return cls(automaton, params, grows, grows and issubclass(policy, Blockwise))

    def chain(self, canvas: Canvas, whole: bool = False) -> Chain:
        """The automaton along a canvas; `whole`: without the room that is left behind it. Cells
        that are never returned do not belong to it."""
        longest = self.params.max_new_tokens if canvas.most is None else canvas.most
        room = 0 if whole or not self.grows else max(0, longest - canvas.length)
        least, ends = canvas.behind(self.params.min_new_tokens), not len(canvas.suffix)
        cells = canvas.cells[: canvas.most]
        return Chain(self.automaton, Cells(cells, canvas.special.mask, least, ends, room))

    def accepts(self, canvas: Canvas) -> bool:
        """Whether the text of a finished canvas is of the form."""
        state = self.automaton.walk(0, canvas.cells[canvas.returned])
        return state != NOWHERE and bool(self.automaton.accepting[state])

    def kept(self, canvas: Canvas, edits: tuple[Edit, ...], longest: int) -> tuple[Edit, ...]:
        """These edits as far as a text of the form still fits: where what is written needs more
        room the canvas grows, fewer cells are dropped, and an edit that would part what belongs
        together is not made."""

        def fits(edits: tuple[Edit, ...]) -> bool:
            return self.chain(canvas.edit(edits, longest).canvas, whole=not self.by_blocks).fits

        if fits(edits):
            return edits
        if self.grows and not fits(()):
            room = longest - canvas.own_length
            enough = next((n for n in _doubled(room) if fits((Append(n),))), None)
            return () if enough is None else (Append(enough),)
        match edits:
            case (Trim(count),):
                fewer, too_many = 0, count
                while too_many - fewer > 1:
                    middle = (fewer + too_many) // 2
                    fewer, too_many = (
                        (middle, too_many) if fits((Trim(middle),)) else (fewer, middle)
                    )
                return (Trim(fewer),) if fewer else ()
        return ()

    def after(self, asked: tuple[Edit, ...], made: tuple[Edit, ...]) -> "Form":
        """The form from the next step on. Where the canvas had to grow although its policy did not
        ask for that, the policy is done with growing, and the text ends on the canvas."""
        grown = any(isinstance(edit, Append) for edit in made)
        by_policy = any(isinstance(edit, Append) for edit in asked)
        return replace(self, grows=False) if grown and not by_policy else self

    def first_length(self, wanted: int, longest: int, suffix: bool) -> int | None:
        """How long a canvas of MASKs is to be where `wanted` are: nearest to that, longer if it
        must be. Before a suffix the text fills the canvas."""
        shortest = self.automaton.shortest_text(self.params.min_new_tokens, longest)
        if shortest is None or (not suffix and shortest <= wanted):
            return None if shortest is None else wanted
        if not suffix:
            return shortest
        lengths = [n for n in range(shortest, longest + 1) if self.automaton.exact(n)[0]]
        return min(lengths, key=lambda n: (n < wanted, abs(n - wanted)))


def _doubled(most: int) -> Iterator[int]:
    """8, 16, 32, … up to `most`, and `most` itself."""
    count = 8
    while count < most:
        yield count
        count *= 2
    if most > 0:
        yield most


def draws(seed: int, step: int, length: int) -> np.ndarray:
    """A number for each cell that decides on its class of tokens; another one, on the token."""
    stream = np.random.SeedSequence((seed, step, 1))
    return np.random.Generator(np.random.PCG64(stream)).random(length)
