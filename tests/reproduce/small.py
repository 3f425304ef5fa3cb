"""A reproduction small enough for a test: canvases of 4 to 16 tokens, one task."""

from rho_eos.evals.studies.cost import Scale
from rho_eos.reproduce.profiles import Profile

SMALL = Profile(
    name="small",
    scale=Scale(
        tasks=("tiny-math",),
        prompt_tokens=100,
        answer_tokens=10,
        tokens_per_forward=2.0,
        block_length=32,
    ),
    signal_tasks=("tiny-math",),
    figure_tasks=("tiny-math",),
    lengths=(4, 8, 16),
    one_token_lengths=(4,),
    one_token_samples=1,
)
