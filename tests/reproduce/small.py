"""A reproduction small enough for a test: canvases of 4 to 16 tokens, one task."""

from rho_eos.reproduce.profiles import Profile

SMALL = Profile(
    name="small",
    tasks=("tiny-math",),
    block_length=32,
    signal_tasks=("tiny-math",),
    figure_tasks=("tiny-math",),
    lengths=(4, 8, 16),
    one_token_lengths=(4,),
    one_token_samples=1,
)
