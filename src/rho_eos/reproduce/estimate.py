"""What a run will cost, roughly: positions evaluated per sample, before anything is run.

One token a step is exact but for the prompt. For the rest it takes the profile's guess of how long
an answer is and how many tokens a forward commits; a canvas that adapts is taken a third larger.
"""

from rho_eos.decoding.params import DecodeParams
from rho_eos.reproduce.profiles import Profile

SPARE = 1.33


def estimate_positions(params: DecodeParams, profile: Profile) -> float:
    """Of one sample: Σ over its forwards of prompt + canvas."""
    prompt, start = profile.prompt_tokens, params.initial_length
    if params.steps is not None:
        return params.steps * (prompt + start)
    fitting = min(SPARE * profile.answer_tokens, params.max_new_tokens)
    canvas = {"fixed": start, "daedal": max(start, fitting), "rho-eos": fitting}[params.policy]
    forwards = min(profile.answer_tokens, canvas) / profile.tokens_per_forward
    grown = max(0.0, fitting - start) if params.policy == "daedal" else 0.0
    growing = grown / params.expansion_base * (prompt + start + grown / 2)
    return forwards * (prompt + canvas) + growing
