"""The rule of the released ρ-EOS code at batch size 1, kept so that its numbers can be run again.

It differs from the paper (docs/method.md §8): the signal is EOS confidence, contraction cuts
whatever stands at the end, the commit window need not be aligned, and reaching L_max freezes the
length for good.
"""

import numpy as np

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.commits.threshold import Threshold, ThresholdParams
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.expansion import ExpansionParams, expansion_factor
from rho_eos.decoding.policy import Keeps, Policy, Step
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import confidence


class ReleasedParams(ExpansionParams, ThresholdParams):
    pass


@register_policy
class Released(Policy):
    """The published code's own rule, which follows EOS confidence and may cut the text."""

    name = "released"
    Params = ReleasedParams
    edits = (Append, Trim)
    keeps = Keeps.NOTHING
    needs = Needs(whole_canvas=True)
    rule = Threshold  # on a window of its own
    params: ReleasedParams

    def __init__(self, params: ReleasedParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.threshold = Threshold(params, special)
        self.window_start = 0
        self.window_end = 0
        self.frozen = False

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        number = confidence(canvas, prediction)
        window = self._window(canvas)
        commit = self.threshold(canvas, prediction.at(window))
        length, edits = self._edits(canvas, number)
        if len(commit) == len(window):
            self.window_start = self.window_end
        self.window_start = min(self.window_start, length)
        done = self.window_start >= length or self._out_of_steps(canvas, commit)
        return Step(edits, number, commit, finished=done)

    def _window(self, canvas: Canvas) -> Positions:
        width = self.params.block_length or canvas.length
        self.window_end = min(self.window_start + width, canvas.length)
        inside = (canvas.masked >= self.window_start) & (canvas.masked < self.window_end)
        return canvas.masked[inside]

    def _out_of_steps(self, canvas: Canvas, commit: Positions) -> bool:
        """The released code makes L_max steps; we go on for a minimum length it does not know."""
        left = np.setdiff1d(canvas.masked, commit, assume_unique=True)
        first = int(left.min(initial=canvas.length))
        enough = first >= min(self.params.min_new_tokens, canvas.length)
        return canvas.step + 1 >= self.params.max_new_tokens and enough

    def _edits(self, canvas: Canvas, number: float) -> tuple[int, tuple[Edit, ...]]:
        """The length that follows, and the edits that lead to it."""
        params = self.params
        self.frozen = self.frozen or canvas.length >= params.max_new_tokens
        low, high = params.region
        late = canvas.step >= min(params.horizon, params.max_new_tokens)
        if self.frozen or late or low <= number <= high:
            return canvas.length, ()
        count = expansion_factor(number, params)
        if number < low:
            count = min(count, params.max_new_tokens - canvas.length)
            return canvas.length + count, (Append(count),)
        count = min(count, canvas.length - params.min_new_tokens)
        if count <= 0:
            return canvas.length, ()
        return canvas.length - count, (Trim(count),)
