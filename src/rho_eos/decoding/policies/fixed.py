"""Fixed length: the control. LLaDA's own decoding is `commit: quota` on it (docs/method.md §5)."""

from rho_eos.decoding.canvas import Canvas, Positions
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Blockwise, Infills, Policy, Step, Windowed
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.registry import register_policy
from rho_eos.decoding.signal import density


class FixedParams(DecodeParams):
    @property
    def longest(self) -> int:
        return self.initial_length


@register_policy
class Fixed(Windowed, Infills, Blockwise, Policy):
    """The canvas keeps the length it starts with."""

    name = "fixed"
    Params = FixedParams

    def step(self, canvas: Canvas, prediction: Prediction, commit: Positions) -> Step:  # noqa: ARG002
        return Step(signal=density(canvas, prediction))  # it is only recorded, for the figures
