"""A reproduction small enough for a test: canvases of 4 to 16 tokens, one task."""

from rho_eos.reproduce.plan import Profile

SMALL = Profile(
    name="small",
    tasks=("tiny-math",),
    block_length=32,
    figure_tasks=("tiny-math",),
    lengths=(4, 8, 16),
    one_token_lengths=(4,),
)
