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
    tasks={"figures": ("tiny-math",)},
    fixed_lengths=(4, 8),
    one_token_lengths=(4,),
    one_token_samples=1,
    initial_length=4,
    initial_lengths=(8,),
    max_length=16,
    figure_lengths=(4, 8),
)
