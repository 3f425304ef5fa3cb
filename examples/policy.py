r"""A length policy of one's own: room is added for as long as the model sees no end of the text.

rho-eos watch "Eva has 7 keys. 1) wins 8. How many are there now?" --plugin examples/policy.py \
    --policy until-eos --chunk 16
rho-eos eval --tasks tiny-gsm --limit 50 --plugin examples/policy.py --policy until-eos --out …

Which tokens are written is the commit rule's business, so every `--commit` goes with it.
"""

import numpy as np

from rho_eos import (
    Append,
    Canvas,
    DecodeParams,
    Policy,
    Prediction,
    Step,
    register_policy,
    setting,
)


class UntilEosParams(DecodeParams):  # what all requests share
    chunk: int = setting(32, "MASKs that are appended at a time", ge=1, le=1024)


@register_policy
class UntilEos(Policy):
    """Appends MASKs for as long as no open position would become EOS."""

    name = "until-eos"
    Params = UntilEosParams
    edits = (Append,)

    def step(self, canvas: Canvas, prediction: Prediction, commit: np.ndarray) -> Step:
        ends = prediction.at(canvas.masked).token == self.special.eos
        room = self.params.max_new_tokens - canvas.length
        if ends.any() or self.special.eos in canvas.cells or room <= 0:
            return Step(signal=float(ends.mean()))
        return Step((Append(min(self.params.chunk, room)),), signal=0.0)
