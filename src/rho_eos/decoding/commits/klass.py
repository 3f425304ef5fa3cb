"""KLASS (arXiv 2511.05664): a token is written once its distribution has come to rest."""

from rho_eos.base.settings import setting
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.commit import CommitParams, CommitRule, ranked
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.registry import register_commit
from rho_eos.decoding.signal import REMEMBERED


class KlassParams(CommitParams):
    threshold: float = setting(0.9, "commit only candidates more confident than this", gt=0, le=1)
    stability: float = setting(
        0.01, "a distribution is at rest below this divergence from the last step", gt=0, le=100
    )
    stable_steps: int = setting(2, "for so many steps in a row", ge=1, le=REMEMBERED)


@register_commit
class Klass(CommitRule):
    """Commits confident candidates whose distribution has hardly changed in the last steps."""

    name = "klass"
    Params = KlassParams
    needs = Needs(top=64, divergence=True)
    params: KlassParams

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Positions:  # noqa: ARG002
        params, candidates = self.params, self.deferring(candidates)
        assert candidates.divergence is not None
        calm = (candidates.divergence[:, : params.stable_steps] < params.stability).all(-1)
        chosen = candidates.positions[calm & (candidates.confidence > params.threshold)]
        return chosen if len(chosen) else ranked(candidates, params.order)[:1]
