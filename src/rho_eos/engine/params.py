"""How answers are scored, without anything that is slow to import."""

from typing import Literal

from rho_eos.base.settings import Settings, setting

MOST_DRAWS = 1_000_000


class ScoreParams(Settings):
    """How answers are scored."""

    method: Literal["bound", "chain", "pseudo"] = setting(
        "bound",
        "bound: LLaDA's Monte Carlo bound; chain: exact, from left to right; pseudo: each token "
        "given all others",
    )
    draws: int = setting(
        128, "masks drawn for the bound; LLaDA's evaluation uses 128", ge=1, le=MOST_DRAWS
    )
    seed: int = setting(0, "of the masks", ge=0, lt=2**64)
    cfg_scale: float = setting(0.0, "classifier-free guidance; 0 is none", ge=0, le=100)
