"""The adapter on the embedded model, and task files made for a test."""

import importlib.util
from typing import Any

import pytest

from tests.support import require


@pytest.fixture(scope="session")
def tiny_lm() -> Any:
    require(importlib.util.find_spec("lm_eval") is not None, "lm_eval is not installed")
    from rho_eos.lm_eval.model import RhoEosLM

    return RhoEosLM(
        pretrained="tiny", initial_length=16, max_new_tokens=32, mc_num=16, device="cuda:0"
    )
