r"""Landing: the end of the text read as a change point of P(EOS) (ours, docs/method.md §11).

rho-eos watch "Eva has 7 keys. 1) wins 8. How many are there now?" --policy landing \
    --plugin examples/landing.py

`scout` does the same better; it is here as an example of a policy with a signal of its own.
"""

import math

import numpy as np

from rho_eos import (
    Append,
    Canvas,
    DecodeParams,
    Policy,
    Prediction,
    Step,
    Trim,
    Windowed,
    register_policy,
    setting,
)
from rho_eos.decoding.canvas import Positions
from rho_eos.decoding.edits import Edit
from rho_eos.decoding.signal import trailing_masks

LEAST_BEHIND = 8  # MASKs that must lie behind an end for it to count as seen
LEAST_SLACK, LEAST_DROPPED, LEAST_GROWTH = 16, 16, 64


class LandingParams(DecodeParams):
    slack_first: float = setting(
        0.5, "room behind the end when nothing is written, as a share of what is left", ge=0, le=4
    )
    slack_last: float = setting(0.1, "the same when nearly all is written", ge=0, le=4)


@register_policy
class Landing(Windowed, Policy):
    """Finds where P(EOS) takes over, and lets the room behind that point melt away.

    `signal` is the share of MASKs before the end of the text, as far as it can be seen.
    """

    name = "landing"
    Params = LandingParams
    edits = (Append, Trim)

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        masks = len(canvas.masked)
        if not masks:
            return Step()
        end, fits = change_point(prediction.at(canvas.masked).eos_probability)
        edits = self._edits(canvas, commit, end) if fits else self._grow(canvas)
        return Step(edits, signal=end / masks)

    def _grow(self, canvas: Canvas) -> tuple[Edit, ...]:
        room = self.params.max_new_tokens - canvas.length
        if room <= 0 or self.special.is_end(canvas.cells).any():
            return ()
        return (Append(min(max(LEAST_GROWTH, canvas.length // 2), room)),)

    def _edits(self, canvas: Canvas, commit: Positions, end: int) -> tuple[Edit, ...]:
        params = self.params
        written = canvas.length - len(canvas.masked)
        share = written / max(1, written + end)
        slack = params.slack_first + (params.slack_last - params.slack_first) * share
        kept = end + max(LEAST_SLACK, math.ceil(slack * end))
        spare = canvas.length - params.min_new_tokens
        count = min(len(canvas.masked) - kept, trailing_masks(canvas, commit), spare)
        return (Trim(count),) if count > LEAST_DROPPED else ()


def change_point(eos_probability: np.ndarray) -> tuple[int, bool]:
    """How many MASKs come before the end of the text, and whether that end is really seen.

    The best split of the MASKs into text, where EOS is unlikely, and padding, where it is likely.
    It is seen if padding remains behind it, and the split is clearly better than "all is text".
    """
    likely = np.clip(eos_probability, 0.02, 0.98)
    text = np.concatenate(([0.0], np.cumsum(np.log(1 - likely))))
    padding = np.concatenate((np.cumsum(np.log(likely)[::-1])[::-1], [0.0]))
    score = text + padding
    end, masks = int(np.argmax(score)), len(likely)
    fits = end <= masks - LEAST_BEHIND and score[end] > score[masks] + 2 * math.log(masks + 1)
    return end, bool(fits)
