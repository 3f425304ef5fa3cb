"""What a run will cost, roughly: positions evaluated per sample, before anything is run.

One token a step is exact but for the prompt. For the rest it takes the profile's guess of how long
an answer is and how many tokens a forward commits; a canvas that adapts is taken a third larger,
and one that starts longer than it need be is taken to be halfway there. A forward commits more in
longer blocks and less at a stricter τ.
"""

import math

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policies.daedal import DaedalParams
from rho_eos.decoding.policies.fixed import FixedParams
from rho_eos.reproduce.profiles import Profile

SPARE = 1.33
STRICT, STRICT_SHARE = 0.99, 0.25  # above this τ, of the tokens that a forward commits at 0.9
WINDOW_SHARE = 0.45  # of the positions, with the window cache


def estimate_positions(params: DecodeParams, profile: Profile) -> float:
    """Of one sample: Σ over its forwards of prompt + canvas."""
    prompt, start = profile.prompt_tokens, params.initial_length
    if isinstance(params, FixedParams) and params.steps is not None:
        return params.steps * (prompt + start)
    fitting = min(SPARE * profile.answer_tokens, params.max_new_tokens)
    canvas, growing = max(fitting, (start + fitting) / 2), 0.0
    if isinstance(params, FixedParams):
        canvas = start
    elif isinstance(params, DaedalParams):
        canvas = max(start, fitting)
        grown = max(0.0, fitting - start)
        growing = grown / params.expansion_base * (prompt + start + grown / 2)
    forwards = min(profile.answer_tokens, canvas) / _tokens_per_forward(params, profile)
    share = WINDOW_SHARE if params.cache == "window" else 1.0
    return share * forwards * (prompt + canvas) + growing


def _tokens_per_forward(params: DecodeParams, profile: Profile) -> float:
    tokens = profile.tokens_per_forward
    block = getattr(params, "block_length", None)
    if block is not None:
        tokens *= math.sqrt(block / profile.block_length)
    return tokens * (STRICT_SHARE if getattr(params, "threshold", 0) > STRICT else 1.0)
