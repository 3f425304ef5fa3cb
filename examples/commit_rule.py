r"""A commit rule of one's own: write from left to right, as far as the model is sure.

rho-eos watch "Eva has 7 keys. 1) wins 8. How many are there now?" --commit leftmost --sure 0.8 \
    --plugin examples/commit_rule.py
rho-eos survey lengths --plugin examples/commit_rule.py --with commit=threshold,leftmost --out …

It goes with every length policy and every cache.
"""

import numpy as np

from rho_eos import Canvas, CommitParams, CommitRule, Prediction, register_commit, setting


class LeftmostParams(CommitParams):  # block_length, order and defer_eos are every rule's
    sure: float = setting(0.9, "write on while the next token is more probable", gt=0, le=1)


@register_commit
class Leftmost(CommitRule):
    """Commits the first candidate, and those behind it up to the first unsure one."""

    name = "leftmost"
    Params = LeftmostParams

    def __call__(self, canvas: Canvas, candidates: Prediction) -> np.ndarray:
        unsure = np.flatnonzero(candidates.confidence <= self.params.sure)
        count = int(unsure[0]) if len(unsure) else len(candidates.positions)
        return candidates.positions[: max(1, count)]
