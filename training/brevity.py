"""How `terse` is trained: the canvas decides how much of an answer is given.

LLaDA is trained on answers padded to the longest of a batch and never cut off, so on a short canvas
it may compress its answer instead of beginning one that does not fit. `terse` is taught just that.
It begins with the weights of `tiny`, which gives every answer in full. Canvases are then drawn
shorter than the full answer about as often as longer, the fullest answer that fits is asked for,
and there is always at least one EOS behind it. Short answers are shown on long canvases, too: else
the model reads the number of steps off the canvas and invents some.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rho_problems.problem import Problem
from training.curriculum import BLOCKS, Phase, Sibling, ramp
from training.rows import LONGEST_CANVAS, Row, RowMaker

ROOMY = 0.55  # share of canvases that are drawn long enough for the full answer
WIDE = 0.4  # of these, share drawn up to the longest there is, or length would follow from canvas
LEAST = 4  # shortest canvas
# An answer is taken to need up to so much more room than it does, and now and then a shorter one
# is given for no reason: where one form gives way to the next is not sharp.
MARGIN, NO_REASON = 0.1, 0.04
FRESH = 0.3  # share of canvases that are still all MASK, when the form is chosen


class Brevity(Sibling):
    """See the module."""

    turns = ("tiny-gsm", "tiny-math", "tiny-gsm", "tiny-mbpp", "tiny-humaneval")  # stories are hard

    def phase(self, moment: float, step: int) -> Phase:
        """Canvases only, as at the end of `tiny`'s training, and small steps: full answers stay."""
        return Phase(
            least_difficulty=1.0,
            drills=0.0,
            two_stream=0.0,
            blocks=np.ones(len(BLOCKS)) / len(BLOCKS),
            rehearsals=2 if moment > 0.5 else 0,
            oversure=ramp(moment, [0.0, 0.3, 0.8], [1.0, 3.0, 10.0]),
            rate=min(1.0, (step + 1) / 50) * ramp(moment, [0.5, 1.0], [0.1, 0.01]),
        )

    def canvas_row(self, maker: RowMaker, problem: Problem, task: int) -> Row:
        prompt, full = maker.encode(problem)
        answers = [full, *(maker.encode_text(text) for text in problem.shorter)]
        lengths = [len(answer) for answer in answers]
        room = canvas_length(maker, lengths)
        answer = answers[fullest_that_fits(lengths, room, maker.rng)]
        return maker.row_on_canvas(prompt, answer, room, task, fresh=FRESH)


def canvas_length(maker: RowMaker, lengths: Sequence[int]) -> int:
    """Roomy, often wide, or shorter than the full answer, small ones as often as large ones."""
    if maker.rng.random() < ROOMY:
        enough = round(lengths[0] / (1 - MARGIN))
        if maker.rng.random() < WIDE:
            return _between(enough + 1, LONGEST_CANVAS, maker.rng)
        return maker.roomy_length(enough)
    return _between(max(LEAST, lengths[-1] + 1), lengths[0] + 1, maker.rng)


def _between(least: int, most: int, rng: np.random.Generator) -> int:
    return round(float(np.exp(rng.uniform(np.log(least), np.log(max(least, most))))))


def fullest_that_fits(lengths: Sequence[int], room: int, rng: np.random.Generator) -> int:
    """Which of the answers, fullest first, a canvas with so much room gets, an EOS included."""
    usable = min(room - 1, room * (1 - MARGIN * rng.random()))
    chosen = next((i for i, length in enumerate(lengths) if length <= usable), len(lengths) - 1)
    return min(chosen + int(rng.random() < NO_REASON), len(lengths) - 1)
