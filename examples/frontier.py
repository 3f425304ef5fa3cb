r"""Frontier: room only where it is needed next (ours, docs/method.md §11).

rho-eos watch "Eva has 7 keys. 1) wins 8. How many are there now?" --policy frontier \
    --plugin examples/frontier.py

`scout` does the same better; it is here as an example of a whole policy.
"""

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
from rho_eos.decoding.signal import density, end_in_sight

LEAST_DROPPED = 8
SPARE = 32


class FrontierParams(DecodeParams):
    ahead: int = setting(64, "MASKs to have open while no end is in sight", ge=1, le=2**20)
    margin: int = setting(16, "MASKs to keep behind the end of the text", ge=0, le=2**20)


@register_policy
class Frontier(Windowed, Policy):
    """Keeps a stretch of MASKs ahead of the text, and a short margin once its end is seen."""

    name = "frontier"
    Params = FrontierParams
    edits = (Append, Trim)

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        return Step(self._edits(canvas, prediction, commit), density(canvas, prediction))

    def _edits(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> tuple[Edit, ...]:
        params = self.params
        ending = ending_masks(canvas, prediction)
        if ending is None:
            room = params.max_new_tokens - canvas.length
            missing = params.ahead - len(canvas.masked)
            return (Append(min(missing + SPARE, room)),) if missing > 0 and room > 0 else ()
        open_ = np.setdiff1d(ending, commit, assume_unique=True)
        trailing = len(open_) and open_[-1] == canvas.length - 1
        spare = canvas.length - params.min_new_tokens
        count = min(len(ending) - params.margin, len(open_), spare)
        # What is dropped must be one run at the end of the canvas.
        if not trailing or count < LEAST_DROPPED:
            return ()
        run = open_[-count:]
        return (Trim(count),) if run[0] == canvas.length - count else ()


def ending_masks(canvas: Canvas, prediction: Prediction) -> Positions | None:
    """The MASKs at the end of the canvas that would be EOS, among EOS that are committed.

    None: the last position is neither, so no end is in sight.
    """
    end = end_in_sight(canvas, prediction)
    return None if end is None else canvas.masked[np.searchsorted(canvas.masked, end) :]
