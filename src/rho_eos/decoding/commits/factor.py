"""Fast-dLLM's factor rule (arXiv 2505.22618): the more tokens at once, the surer each has to be."""

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.commit import CommitParams, CommitRule, ranked
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.registry import register_commit


class FactorParams(CommitParams):
    factor: float = setting(
        1.0, "f: n tokens are committed at once while (n + 1)(1 - confidence) < f", gt=0, le=100
    )


@register_commit
class Factor(CommitRule):
    """Commits the n surest candidates, n as large as (n + 1)(1 - confidence of the n-th) < f."""

    name = "factor"
    Params = FactorParams
    params: FactorParams

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Positions:  # noqa: ARG002
        params, candidates = self.params, self.deferring(candidates)
        order = ranked(candidates, params.order)
        least = np.minimum.accumulate(candidates.at(order).confidence)  # of the first n
        count = np.arange(1, len(order) + 1)
        fits = np.flatnonzero((count + 1) * (1 - least) < params.factor)
        return np.sort(order[: int(fits[-1]) + 1 if len(fits) else 1])
