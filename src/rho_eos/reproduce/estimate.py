"""What a run will cost, roughly: positions evaluated per sample, before anything is run.

One token a step is exact but for the prompt. For the rest it takes the profile's guess of how long
an answer is and how many tokens a forward commits; a canvas that adapts is taken a third larger.
"""

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policies.daedal import DaedalParams
from rho_eos.decoding.policies.fixed import FixedParams
from rho_eos.reproduce.profiles import Profile

SPARE = 1.33


def estimate_positions(params: DecodeParams, profile: Profile) -> float:
    """Of one sample: Σ over its forwards of prompt + canvas."""
    prompt, start = profile.prompt_tokens, params.initial_length
    if isinstance(params, FixedParams) and params.steps is not None:
        return params.steps * (prompt + start)
    fitting = min(SPARE * profile.answer_tokens, params.max_new_tokens)
    canvas, growing = fitting, 0.0
    if isinstance(params, FixedParams):
        canvas = start
    elif isinstance(params, DaedalParams):
        canvas = max(start, fitting)
        grown = max(0.0, fitting - start)
        growing = grown / params.expansion_base * (prompt + start + grown / 2)
    forwards = min(profile.answer_tokens, canvas) / profile.tokens_per_forward
    return forwards * (prompt + canvas) + growing
