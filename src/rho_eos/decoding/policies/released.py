"""The rule of the released ρ-EOS code at batch size 1, kept so that its numbers can be run again.

It differs from the paper (docs/method.md §8): the signal is EOS confidence, contraction cuts
whatever stands at the end, the commit window need not be aligned, and reaching L_max freezes the
length for good.
"""

import numpy as np

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.commit import CommitParams, above_threshold, without_eos_if_possible
from rho_eos.decoding.edits import Append, Edit, Trim
from rho_eos.decoding.expansion import ExpansionParams, expansion_factor
from rho_eos.decoding.policy import Keeps, Needs, Policy, Positions, Prediction, Step, View
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import confidence


class ReleasedParams(ExpansionParams, CommitParams):
    pass


@register_policy
class Released(Policy):
    name = "released"
    title = "ρ-EOS, released code"
    summary = "The published code's own rule, which follows EOS confidence and may cut the text."
    Params = ReleasedParams
    edits = (Append, Trim)
    keeps = Keeps.NOTHING
    needs = Needs(whole_canvas=True)
    params: ReleasedParams

    def __init__(self, params: ReleasedParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.window_start = 0
        self.window_end = 0
        self.frozen = False

    @classmethod
    def signal_name(cls, params: ReleasedParams) -> str:  # noqa: ARG003
        return "EOS confidence"

    def step(self, view: View, prediction: Prediction) -> Step:
        params = self.params
        number = confidence(view, prediction, self.special.eos)
        window = self._window(view)
        candidates = prediction.at(window)
        if params.defer_eos:
            candidates = without_eos_if_possible(candidates, self.special)
        commit = above_threshold(candidates, params.threshold, params.tie)
        length, edits = self._edits(view, number)
        if len(commit) == len(window):
            self.window_start = self.window_end
        self.window_start = min(self.window_start, length)
        done = self.window_start >= length or self._out_of_steps(view, commit)
        return Step(commit, edits, number, finished=done)

    def _window(self, view: View) -> Positions:
        width = self.params.block_length or view.length
        self.window_end = min(self.window_start + width, view.length)
        inside = (view.masked >= self.window_start) & (view.masked < self.window_end)
        return view.masked[inside]

    def _out_of_steps(self, view: View, commit: Positions) -> bool:
        """The released code makes L_max steps; we go on for a minimum length it does not know."""
        left = np.setdiff1d(view.masked, commit, assume_unique=True)
        first = int(left.min(initial=view.length))
        enough = first >= min(self.params.min_new_tokens, view.length)
        return view.step + 1 >= self.params.max_new_tokens and enough

    def _edits(self, view: View, number: float) -> tuple[int, tuple[Edit, ...]]:
        """The length that follows, and the edits that lead to it."""
        params = self.params
        self.frozen = self.frozen or view.length >= params.max_new_tokens
        low, high = params.region
        late = view.step >= min(params.horizon, params.max_new_tokens)
        if self.frozen or late or low <= number <= high:
            return view.length, ()
        count = expansion_factor(number, params)
        if number < low:
            count = min(count, params.max_new_tokens - view.length)
            return view.length + count, (Append(count),)
        count = min(count, view.length - params.min_new_tokens)
        if count <= 0:
            return view.length, ()
        return view.length - count, (Trim(count),)
