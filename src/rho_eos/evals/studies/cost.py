"""What a run will cost, roughly: positions evaluated per sample, before anything is run.

The number of forwards is known where a policy is given its steps. For the rest it follows from how
long an answer usually is and how many tokens a forward commits. A canvas that adapts is taken to be
a third longer than the answer, and one that starts longer than that is taken to be halfway there.
"""

import math
from dataclasses import dataclass

from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.models.known import EMBEDDED

SPARE = 1.33
STRICT, STRICT_SHARE = 0.99, 0.25  # above this τ a forward commits this share of what 0.9 does
CACHED_SHARE = 0.45  # of the positions, with a cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The benchmarks that suit a model, and how long prompts and answers are there."""

    tasks: tuple[str, ...]
    prompt_tokens: int
    answer_tokens: int
    tokens_per_forward: float  # at τ 0.9, in blocks of block_length
    block_length: int
    seconds_per_position: float | None = None  # None: the machine is not known


PUBLISHED_MODELS = Scale(
    tasks=("gsm8k", "math500", "mbpp", "humaneval"),
    prompt_tokens=180,
    answer_tokens=350,
    tokens_per_forward=2.5,
    block_length=32,
)
EMBEDDED_MODELS = Scale(
    tasks=("tiny-gsm", "tiny-math", "tiny-mbpp", "tiny-humaneval"),
    prompt_tokens=80,
    answer_tokens=100,
    tokens_per_forward=6.0,
    block_length=8,
    seconds_per_position=50e-6,  # on two quiet CPU cores
)


def scale_of(config: EngineConfig) -> Scale:
    return EMBEDDED_MODELS if config.model in EMBEDDED else PUBLISHED_MODELS


def estimate_positions(params: DecodeParams, scale: Scale) -> float:
    """The sum of prompt and canvas over the forwards of one sample."""
    prompt, start = scale.prompt_tokens, params.initial_length
    steps: int | None = getattr(params, "steps", None)
    if steps is not None:
        return steps * (prompt + start)
    fitting = min(SPARE * scale.answer_tokens, params.max_new_tokens)
    canvas = start if params.policy == "fixed" else max(fitting, (start + fitting) / 2)
    commits = scale.tokens_per_forward
    commits *= math.sqrt((getattr(params, "block_length", None) or start) / scale.block_length)
    commits *= STRICT_SHARE if getattr(params, "threshold", 0) > STRICT else 1.0
    share = 1.0 if params.cache == "none" else CACHED_SHARE
    return share * min(scale.answer_tokens, canvas) / commits * (prompt + canvas)
