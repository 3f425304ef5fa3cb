"""Blocks until EOS: dLLM-Var's rule without its cache (docs/method.md §11).

For checkpoints that were trained to end exactly; on others it is a baseline. It is also how block
diffusion models are decoded (§13): there a block is the model's own, and nothing behind it exists.
"""

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.commit import CommitParams
from rho_eos.decoding.edits import Append
from rho_eos.decoding.params import LONGEST, DecodeParams
from rho_eos.decoding.policy import Blockwise, Policy, Step
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import density, will_end


class BlocksParams(DecodeParams, CommitParams):
    block_length: int | None = setting(
        None, "commit within one part of a block at a time; none: anywhere", ge=1, le=LONGEST
    )
    initial_length: int = setting(
        64, "MASKs in a block; a block diffusion model has its own", ge=1, le=LONGEST
    )


@register_policy
class BlocksUntilEnd(Blockwise, Policy):
    """Fills one block of MASKs, and appends the next as long as no end of text is in it."""

    name = "blocks"
    Params = BlocksParams
    edits = (Append,)
    params: BlocksParams

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:
        rho = density(canvas, prediction)
        room = canvas.whole_blocks(self.params.max_new_tokens) - canvas.length
        full = np.isin(canvas.masked, commit).all() and not will_end(canvas, prediction, commit)
        if not full or room <= 0:
            return Step(signal=rho)
        block = self.params.initial_length if canvas.blocks is None else canvas.blocks.length
        return Step((Append(min(block, room)),), rho)
