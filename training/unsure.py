"""How `unsure` is trained: how long the answer will be cannot be known beforehand.

Every problem is answered in one of three forms (`forms.py`), all equally often, whatever the
problem is and however long the canvas. So before anything is committed P(EOS) rises over the canvas
in three steps: a third behind the bare answer, two behind the brief one, all of it behind the full
one. Canvases are drawn by the length of the full answer whichever form they get; some are too short
for it, and then show as much of the form as fits, so that a canvas says nothing about the form.

What is learned are shares, so an error must count as much whichever token it is about: other
recipes count an EOS less than content, which here would make EOS less likely than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rho_problems.problem import Problem
from training.curriculum import BLOCKS, Phase, Sibling, ramp
from training.forms import forms
from training.rows import BLOCK, LONGEST_CANVAS, NO_TARGET, Row, RowMaker

FRESH = 0.3  # share of canvases that are still all MASK
WIDE = 0.25  # share of canvases of any length that the full answer fits on
FAR = 0.07  # how much counts what is behind the block that decoding fills first


class Unsure(Sibling):
    """See the module."""

    def phase(self, moment: float, step: int) -> Phase:
        """New forms are learned from rows that ask for every position; shares from canvases."""
        return Phase(
            least_difficulty=1.0,
            drills=0.0,
            two_stream=ramp(moment, [0.1, 0.4, 0.5, 0.501], [0.7, 0.3, 0.2, 0.0]),
            blocks=np.ones(len(BLOCKS)) / len(BLOCKS),
            rehearsals=2 if moment > 0.5 else 0,
            oversure=ramp(moment, [0.4, 0.6, 0.8], [1.0, 3.0, 10.0]),
            rate=min(1.0, (step + 1) / 50) * ramp(moment, [0.4, 1.0], [0.3, 0.01]),
        )

    def right(self, problem: Problem) -> Sequence[str]:
        return forms(problem)

    def canvas_row(self, maker: RowMaker, problem: Problem, task: int) -> Row:
        answers = [maker.encode_text(text) for text in forms(problem)]
        answer = answers[maker.rng.integers(len(answers))]
        prompt = maker.encode_prompt(problem.prompt)
        length = canvas_length(maker, max(map(len, answers)))
        row = maker.row_on_canvas(prompt, answer, length, task, fresh=FRESH)
        asked = row.targets != NO_TARGET
        near = np.arange(len(row)) < asked.argmax() + BLOCK
        return replace(row, weights=np.where(near, 1.0, FAR) * asked)


def canvas_length(maker: RowMaker, full: int) -> int:
    """By the length of the full answer only: too short, tight or roomy as for `tiny`, or any."""
    if maker.rng.random() < WIDE:
        return int(maker.rng.integers(full + 1, LONGEST_CANVAS + 1))
    return maker.canvas_length(full)
