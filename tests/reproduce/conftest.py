"""A reproduction small enough for a test: canvases of 4 to 16 tokens, one task."""

from pathlib import Path

import pytest

from rho_eos.reproduce.plan import TABLE_NAMES
from rho_eos.reproduce.profiles import PROFILES, Profile

SMALL = Profile(
    name="small",
    tasks=dict.fromkeys((*TABLE_NAMES, "figures"), ("tiny-math",)),
    fixed_lengths=(4, 8),
    one_token_lengths=(4,),
    one_token_samples=1,
    initial_length=4,
    initial_lengths=(8,),
    max_length=16,
    block_length=32,
    figure_lengths=(4, 8),
    survey_starts=(4, 8),
    survey_fixed=(4, 6, 8),
    survey_longest=16,
    prompt_tokens=100,
    answer_tokens=10,
    tokens_per_forward=2.0,
)


@pytest.fixture(autouse=True)
def small_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--profile small`."""
    monkeypatch.setitem(PROFILES, "small", SMALL)


@pytest.fixture(scope="session")
def ending_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that sometimes says EOS, so that ρ is a number between 0 and 1."""
    from tests.checkpoints import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("ending-llada"), eos_bias=0.2)
