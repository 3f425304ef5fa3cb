"""How long things are: the paper's own numbers, and the embedded model's.

`tiny` answers in about a quarter of the tokens that LLaDA needs for GSM8K to HumanEval, so each of
its lengths is a quarter of the paper's: canvases of 64…2048 become 16…512, blocks of 32 become 8
(in blocks of 32 it writes twenty tokens a forward, and is done before its length is settled).
Nothing else is scaled: τ, the equilibrium regions, the horizon N = 64, E's base of 8, and DAEDAL's
window of 32 and tail of 16 are those of the papers. On two CPU cores there is one more concession,
which tables show in their column n: one token a step is run at the four shortest lengths, on fewer
samples.
"""

from dataclasses import dataclass

from rho_eos.base.errors import UserError
from rho_eos.evals.studies.study import EMBEDDED_TASKS, PUBLISHED_TASKS
from rho_eos.models.known import EMBEDDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The lengths, tasks and samples of a reproduction."""

    name: str
    tasks: tuple[str, ...]  # of the main table
    signal_tasks: tuple[str, ...]
    figure_tasks: tuple[str, ...]
    block_length: int
    lengths: tuple[int, ...]  # the first is L_init, the last L_max, all are tried as fixed ones
    one_token_lengths: tuple[int, ...]  # those also run one token a step
    one_token_samples: int | None  # of each task; None: as many as for everything else
    traced_samples: int = 8  # behind each curve of ρ over steps


PAPER = Profile(
    name="paper",
    tasks=PUBLISHED_TASKS,
    signal_tasks=("gsm8k", "mbpp"),
    figure_tasks=("gsm8k",),
    block_length=32,
    lengths=(64, 128, 256, 512, 1024, 2048),
    one_token_lengths=(64, 128, 256, 512, 1024, 2048),
    one_token_samples=None,
)
TINY = Profile(
    name="tiny",
    tasks=EMBEDDED_TASKS,
    signal_tasks=("tiny-gsm", "tiny-mbpp"),
    figure_tasks=("tiny-gsm", "tiny-mbpp"),
    block_length=8,
    lengths=(16, 32, 64, 128, 256, 512),
    one_token_lengths=(16, 32, 64, 128),
    one_token_samples=12,
)
PROFILES = {profile.name: profile for profile in (PAPER, TINY)}


def choose_profile(model: str, name: str | None) -> Profile:
    """The one asked for; else `tiny` for the embedded models and the paper's for all others."""
    name = name or ("tiny" if model in EMBEDDED else "paper")
    if name not in PROFILES:
        raise UserError(f"profile is {name!r}, but takes one of {', '.join(PROFILES)}")
    return PROFILES[name]
