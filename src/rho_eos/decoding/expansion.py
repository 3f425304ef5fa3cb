"""E(ρ): by how much the canvas changes, given how far ρ lies outside the equilibrium region."""

import math
from collections.abc import Callable
from typing import Literal, Self

from pydantic import model_validator

from rho_eos.base.errors import UserError
from rho_eos.base.settings import setting
from rho_eos.decoding.params import LONGEST, DecodeParams

MULTIPLIERS: dict[str, Callable[[int], int]] = {
    "constant": lambda _: 1,
    "linear": lambda distance: distance,
    "exponential": lambda distance: 2 ** (distance - 1),
}


class RegionParams(DecodeParams):
    """An equilibrium region: signals in it leave the length as it is."""

    rho_low: float = setting(0.4, "expand below this signal", ge=0, le=1)
    rho_high: float = setting(0.8, "contract above this signal", ge=0, le=1)

    @property
    def region(self) -> tuple[float, float]:
        return self.rho_low, self.rho_high

    @model_validator(mode="after")
    def _check_region(self) -> Self:
        low, high = self.region
        if low > high:
            raise UserError.of("rho_low", low, f"at most rho_high, which is {high}")
        return self


class ExpansionParams(RegionParams):
    """How far and how long the length follows the signal."""

    expansion: Literal["constant", "linear", "exponential"] = setting(
        "exponential", "how E grows with the distance of ρ to the region"
    )
    expansion_base: int = setting(8, "smallest change of length, in tokens", ge=1, le=LONGEST)
    expansion_interval: float = setting(
        0.1, "distance of ρ to the region that is one step of E", ge=1e-3, le=1
    )
    expansion_cap: int = setting(8, "largest multiple of the base", ge=1, le=LONGEST)
    horizon: int = setting(
        64, "the length may change during the first so many steps (N)", ge=0, le=LONGEST
    )


def expansion_factor(rho: float, params: ExpansionParams, forwards: int = 1) -> int:
    """E(ρ) = base · m(s), m capped, with s the distance to the region in whole intervals.

    With a cache a decision may stand for several forwards; even so it is not more than the cap.
    """
    low, high = params.region
    distance = max(low - rho, rho - high)
    # 0.4 - 0.1 is a little more than three tenths in binary: do not count a fourth interval for it.
    intervals = max(1, math.ceil(distance / params.expansion_interval - 1e-9))
    multiplier = MULTIPLIERS[params.expansion](min(intervals, 64))
    return params.expansion_base * min(forwards * multiplier, params.expansion_cap)
