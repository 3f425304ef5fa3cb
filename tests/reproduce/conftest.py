"""The command line, a small profile for it, and a model whose ρ is worth drawing."""

from pathlib import Path

import pytest

from rho_eos.reproduce.plan import PROFILES
from tests.reproduce.small import SMALL


@pytest.fixture(autouse=True)
def small_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--profile small`."""
    monkeypatch.setitem(PROFILES, "small", SMALL)


@pytest.fixture(scope="session")
def ending_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that sometimes says EOS, so that ρ is a number between 0 and 1."""
    from tests.checkpoints import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("ending-llada"), eos_bias=0.2)
