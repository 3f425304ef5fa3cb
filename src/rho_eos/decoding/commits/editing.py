"""LLaDA2.1's rule: what is written may be written again, until the block has come to rest."""

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.commit import (
    MOST_POST_STEPS,
    Commit,
    CommitParams,
    CommitRule,
    above_threshold,
)
from rho_eos.decoding.policy import Keeps
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.registry import register_commit


class EditingParams(CommitParams):
    threshold: float = setting(
        0.9, "commit every candidate more confident than this (τ)", gt=0, le=1
    )
    editing_threshold: float = setting(
        0.5,
        "overwrite a committed token of the open block with another one that the model is more "
        "confident of than this",
        ge=0,
        le=1,
    )
    max_post_steps: int = setting(
        16,
        "forwards over a block without MASKs, as long as each changes something",
        ge=0,
        le=MOST_POST_STEPS,
    )


@register_commit
class Editing(CommitRule):
    """Commits by τ, and overwrites tokens of the open block that the model no longer believes."""

    name = "editing"
    Params = EditingParams
    keeps = Keeps.BLOCKS
    needs = Needs(whole_canvas=True)
    implied_by = ("editing_threshold", "max_post_steps")
    params: EditingParams

    def __init__(self, params: EditingParams, special: SpecialTokens) -> None:
        super().__init__(params, special)
        self.post_steps = 0  # forwards over the open block since its last MASK

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Commit:
        params, cells = self.params, canvas.cells[candidates.positions]
        is_mask = cells == self.special.mask
        masks = candidates.at(candidates.positions[is_mask])
        self.post_steps = 0 if is_mask.any() else self.post_steps + 1
        new = above_threshold(self.deferring(masks), params.threshold, order=params.order)
        other = ~is_mask & (candidates.token != cells)
        edited = candidates.positions[other & (candidates.confidence > params.editing_threshold)]
        at_rest = not is_mask.any() and not len(edited)
        goes_on = not at_rest and self.post_steps < params.max_post_steps
        full = np.isin(canvas.open_masks(params.block_length), new).all()
        return Commit(np.union1d(new, edited), unsettled=bool(full and goes_on))
