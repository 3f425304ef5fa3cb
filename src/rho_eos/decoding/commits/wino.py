"""WINO (arXiv 2507.18578): write boldly, and take back what does not hold.

The check is the paper's: beside the canvas the model sees the same canvas with the whole open block
hidden, so that a committed token does not vouch for itself. That second canvas is a probe of the
same forward; it doubles the positions of a step.
"""

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.decoding.canvas import COMMIT_STEP, NEVER, Canvas
from rho_eos.decoding.commit import Commit, CommitParams, CommitRule, above_threshold
from rho_eos.decoding.policy import Keeps
from rho_eos.decoding.prediction import Prediction, Probe
from rho_eos.decoding.registry import register_commit


class WinoParams(CommitParams):
    draft: float = setting(0.6, "write every candidate more confident than this", gt=0, le=1)
    verify: float = setting(
        0.9, "take back a token of the open block that is less probable than this", ge=0, le=1
    )


@register_commit
class Wino(CommitRule):
    """Writes every candidate above a low bar, and takes back what the rest of the text denies."""

    name = "wino"
    Params = WinoParams
    keeps = Keeps.BLOCKS
    params: WinoParams

    def probes(self, canvas: Canvas) -> list[Probe]:
        written = self._written(canvas)
        if not len(written):
            return []
        return [Probe(canvas.hidden(written), written, canvas.cells[written])]

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Commit:  # noqa: ARG002
        params, candidates = self.params, self.deferring(candidates)
        commit = above_threshold(candidates, params.draft, order=params.order)
        if not candidates.probes:
            return Commit(commit)
        (checked,) = candidates.probes
        assert checked.expected is not None
        # Fewer than are written, the least probable first, so that every step gets on.
        worst = np.argsort(checked.expected, kind="stable")[: max(0, len(commit) - 1)]
        worst = np.sort(worst[checked.expected[worst] < params.verify])
        return Commit(commit, checked.positions[worst])

    def _written(self, canvas: Canvas) -> np.ndarray:
        """The cells of the block that is being written that this rule has committed."""
        first, end = canvas.open_block(self.params.block_length)
        return first + np.flatnonzero(canvas.column(COMMIT_STEP)[first:end] != NEVER)
