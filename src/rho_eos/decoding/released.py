"""The rule of the released ρ-EOS code at batch size 1, kept so that its numbers can be run again.

It differs from the paper (METHOD §8): the signal is EOS confidence, contraction cuts whatever
stands at the end, the commit window need not be aligned, and reaching L_max freezes the length
for good.
"""

from rho_eos.config import DecodeParams
from rho_eos.decoding.commit import above_threshold, without_eos_if_possible
from rho_eos.decoding.expansion import expansion_factor
from rho_eos.decoding.policy import (
    Append,
    Edit,
    Hold,
    Positions,
    Prediction,
    SpecialTokens,
    Step,
    Trim,
    View,
)
from rho_eos.decoding.signal import confidence


class ReleasedRhoEos:
    needs_whole_canvas = True

    def __init__(self, params: DecodeParams, special: SpecialTokens) -> None:
        self.params = params
        self.special = special
        self.window_start = 0
        self.window_end = 0
        self.frozen = False

    def step(self, view: View, prediction: Prediction) -> Step:
        params = self.params
        number = confidence(view, prediction, self.special.eos)
        window = self._window(view)
        candidates = prediction.at(window)
        if params.defer_eos and len(window):
            candidates = without_eos_if_possible(candidates, self.special)
        commit = above_threshold(candidates, params.threshold) if len(window) else window
        edit = self._edit(view, number)
        length = view.length + _growth(edit)
        if len(commit) == len(window):
            self.window_start = self.window_end
        self.window_start = min(self.window_start, length)
        done = self.window_start >= length or view.step + 1 >= params.max_new_tokens
        return Step(commit, edit, number, finished=done)

    def _window(self, view: View) -> Positions:
        width = self.params.block_length or view.length
        self.window_end = min(self.window_start + width, view.length)
        inside = (view.masked >= self.window_start) & (view.masked < self.window_end)
        return view.masked[inside]

    def _edit(self, view: View, number: float | None) -> Edit:
        params = self.params
        self.frozen = self.frozen or view.length >= params.max_new_tokens
        low, high = params.region
        if number is None or self.frozen or view.step >= params.horizon or low <= number <= high:
            return Hold()
        count = expansion_factor(number, params)
        if number < low:
            return Append(min(count, params.max_new_tokens - view.length))
        return Trim(min(count, view.length), cut=True)


def _growth(edit: Edit) -> int:
    if isinstance(edit, Append):
        return edit.count
    return -edit.count if isinstance(edit, Trim) else 0
