"""The ways to choose a length that tables compare: what they are called, and their parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rho_eos.decoding.registry import POLICIES

FIXED, DAEDAL, RHO_SYM, RHO_ASYM = "fixed", "DAEDAL", "ρ-EOS Sym", "ρ-EOS Asym"
ASYM, SYM = (0.4, 0.8), (0.2, 0.8)


@dataclass(frozen=True, slots=True)
class Contender:
    name: str  # on the command line
    label: str  # in tables
    own: Mapping[str, Any]  # the policy and its parameters, all others at their defaults


def contenders() -> list[Contender]:
    """All ways, as a survey's table has them: fixed, published ones, ours, those from outside."""
    return [
        Contender(FIXED, FIXED, {"policy": "fixed"}),
        Contender("daedal", DAEDAL, {"policy": "daedal"}),
        Contender("sym", RHO_SYM, rho_eos(SYM)),
        Contender("asym", RHO_ASYM, rho_eos(ASYM)),
        Contender("narrow", "ρ-EOS [0.4, 0.6]", rho_eos((0.4, 0.6))),
        Contender("confidence", "Asym by EOS confidence", rho_eos(ASYM, signal="confidence")),
        Contender("released", "ρ-EOS, released code", {"policy": "released"}),
        # Its blocks are its canvas.
        Contender("blocks", "Blocks until EOS", {"policy": "blocks", "block_length": None}),
        Contender("scout", "Scout", {"policy": "scout"}),
        Contender("quantile", "Quantile", {"policy": "quantile"}),
        # Other people's policies, with their own defaults.
        *(Contender(name, name, {"policy": name}) for name in outside()),
    ]


def outside() -> list[str]:
    """The names of other people's policies."""
    return [name for name in POLICIES.all() if POLICIES.is_foreign(name)]


def rho_eos(region: tuple[float, float], **more: Any) -> dict[str, Any]:
    return {"policy": "rho-eos", "rho_low": region[0], "rho_high": region[1], **more}
