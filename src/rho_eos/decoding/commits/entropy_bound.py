"""The entropy-bounded rule of EB-Sampler (arXiv 2505.24857)."""

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.commit import ORDER, CommitParams, CommitRule, Order, ranked
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.registry import register_commit


class EntropyBoundParams(CommitParams):
    gamma: float = setting(
        0.1,
        "γ, in nats: the entropies of what is committed, less the largest of them, sum up to at "
        "most this; 0: one token a step",
        ge=0,
        le=1000,
    )
    order: Order = setting("entropy", ORDER)


@register_commit
class EntropyBound(CommitRule):
    """Commits the surest candidates whose entropies, less the largest, sum up to at most γ."""

    name = "entropy-bound"
    Params = EntropyBoundParams
    needs = Needs(entropy=True)
    params: EntropyBoundParams

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Positions:  # noqa: ARG002
        params, candidates = self.params, self.deferring(candidates)
        order = ranked(candidates, params.order)
        entropy = candidates.at(order).entropy
        assert entropy is not None
        rest = np.cumsum(entropy) - np.maximum.accumulate(entropy)
        count = int(np.searchsorted(rest > params.gamma, True))
        return np.sort(order[: max(1, count)])
