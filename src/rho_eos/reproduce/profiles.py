"""How long things are: the paper's own numbers, and the embedded model's.

`tiny` answers in about a quarter of the tokens that LLaDA needs for GSM8K to HumanEval, so each of
its lengths is a quarter of the paper's: canvases of 64…2048 become 16…512, blocks of 32 become 8
(in blocks of 32 it writes twenty tokens a forward, and is done before its length is settled).
Nothing else is scaled: τ, the equilibrium regions, the horizon N = 64, E's base of 8, and DAEDAL's
window of 32 and tail of 16 are those of the papers. On two CPU cores there is one more concession,
which tables show in their column n: one token a step is run at the four shortest lengths, on fewer
samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.models.known import EMBEDDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The lengths and samples of a reproduction. Numbers below the line only guess its cost."""

    name: str
    tasks: Mapping[str, tuple[str, ...]]  # of each table, and of the figures
    fixed_lengths: tuple[int, ...]
    one_token_lengths: tuple[int, ...]  # of fixed_lengths, those also run one token a step
    one_token_samples: int | None  # of each task; None: as many as for everything else
    initial_length: int
    initial_lengths: tuple[int, ...]  # of the table that varies it
    max_length: int
    block_length: int
    figure_lengths: tuple[int, ...]
    traced_samples: int = 8  # behind each curve of ρ over steps
    # Of the surveys `lengths` and `stress`, which ask all models the same.
    survey_starts: tuple[int, ...] = (16, 64, 256, 512)
    survey_fixed: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    survey_longest: int = 2048  # or what the context leaves: a canvas of 512 must not be at L_max
    survey_block: int = 32
    # ---
    prompt_tokens: int
    answer_tokens: int
    tokens_per_forward: float
    seconds_per_position: float | None = None  # None: nobody knows the machine


PAPER = Profile(
    name="paper",
    tasks={
        "main": ("gsm8k", "math500", "mbpp", "humaneval"),
        "init-length": ("gsm8k",),
        "thresholds": ("gsm8k",),
        "expansion": ("gsm8k",),
        "signals": ("gsm8k", "mbpp"),
        "figures": ("gsm8k",),
    },
    fixed_lengths=(64, 128, 256, 512, 1024, 2048),
    one_token_lengths=(64, 128, 256, 512, 1024, 2048),
    one_token_samples=None,
    initial_length=64,
    initial_lengths=(128, 256, 512, 1024),
    max_length=2048,
    block_length=32,
    figure_lengths=(64, 128, 256, 512, 1024),
    prompt_tokens=180,
    answer_tokens=350,
    tokens_per_forward=2.5,
)

TINY = Profile(
    name="tiny",
    tasks={
        "main": ("tiny-gsm", "tiny-math", "tiny-mbpp", "tiny-humaneval"),
        "init-length": ("tiny-gsm",),
        "thresholds": ("tiny-gsm",),
        "expansion": ("tiny-gsm",),
        "signals": ("tiny-gsm", "tiny-mbpp"),
        "figures": ("tiny-gsm", "tiny-mbpp"),
    },
    fixed_lengths=(16, 32, 64, 128, 256, 512),
    one_token_lengths=(16, 32, 64, 128),
    one_token_samples=12,
    initial_length=16,
    initial_lengths=(32, 64, 128, 256),
    max_length=512,
    block_length=8,
    figure_lengths=(16, 32, 64, 128, 256),
    prompt_tokens=80,
    answer_tokens=100,
    tokens_per_forward=6.0,
    seconds_per_position=50e-6,
)

PROFILES = {profile.name: profile for profile in (PAPER, TINY)}


def choose_profile(config: EngineConfig, name: str | None) -> Profile:
    """The one asked for; else `tiny` for the embedded models and the paper's for all others."""
    if name is None:
        return TINY if config.model in EMBEDDED else PAPER
    if name not in PROFILES:
        raise UserError(f"profile is {name!r}, but takes one of {', '.join(PROFILES)}")
    return PROFILES[name]
