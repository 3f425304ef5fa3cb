"""E(ρ): by how much the canvas changes, given how far ρ lies outside the equilibrium region."""

import math
from collections.abc import Callable

from rho_eos.config import DecodeParams

MULTIPLIERS: dict[str, Callable[[int], int]] = {
    "constant": lambda _: 1,
    "linear": lambda distance: distance,
    "exponential": lambda distance: 2 ** (distance - 1),
}


def expansion_factor(rho: float, params: DecodeParams) -> int:
    """E(ρ) = base · m(s), m capped, with s the distance to the region in whole intervals."""
    low, high = params.region
    distance = max(low - rho, rho - high)
    # 0.4 - 0.1 is a little more than three tenths in binary: do not count a fourth interval for it.
    intervals = max(1, math.ceil(distance / params.expansion_interval - 1e-9))
    multiplier = MULTIPLIERS[params.expansion](min(intervals, 64))
    return params.expansion_base * min(multiplier, params.expansion_cap)
