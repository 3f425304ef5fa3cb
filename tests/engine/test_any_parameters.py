"""Any parameters, through the whole engine and a real model: no exception, no rule broken.

What the parameters' own checks let pass must run; what they refuse, they refuse in a sentence.
"""

import json
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Detail
from rho_eos.engine.runner import ModelRunner
from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from tests.attack import times
from tests.drawn import LONGEST, any_parameters, policies_for
from tests.requests import request as request_for

END_OF_TURN, EOS, MASK, VOCABULARY = 1, 2, 3, 24
SPECIAL = SpecialTokens(mask=MASK, eos=EOS, end_of_turn=END_OF_TURN)
PARAMETERS = any_parameters(policies_for(SPECIAL))


def letters(ids: list[int]) -> str:
    return "".join(chr(ord("a") + token) for token in ids)


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_layers": 1, "n_heads": 2, "mlp_hidden_size": 16}
    model = LLaDAForMaskedLM(LLaDAConfig(**sizes, vocab_size=VOCABULARY, init_std=0.5)).eval()
    with torch.no_grad():
        model.lm_head.weight[[EOS, END_OF_TURN]] += 0.3  # it ends its texts, here and there
    return ModelRunner(model, SPECIAL)


def check(params: DecodeParams, output: Output) -> None:
    assert len(output.canvas_token_ids) <= params.max_new_tokens
    assert MASK not in output.token_ids and MASK not in output.canvas_token_ids
    whole = letters(output.token_ids)
    assert output.text == whole
    assert not any(stop in whole for stop in params.stop)
    behind = letters(output.canvas_token_ids)[len(whole) :]
    if not any(behind.startswith(stop) for stop in params.stop):
        assert len(output.token_ids) >= params.min_new_tokens
    json.dumps(output.as_dict(), allow_nan=False)


@settings(
    max_examples=times(60, 2000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(PARAMETERS, min_size=1, max_size=4), st.integers(4, VOCABULARY - 1))
def test_nothing_raises_and_minimum_lengths_are_kept(
    runner: ModelRunner, batch: list[DecodeParams], first: int
) -> None:
    engine = Engine(runner, SPECIAL, letters)
    running = [
        (params, engine.submit(request_for(str(index), [first, 5], params), Detail.STEPS))
        for index, params in enumerate(batch)
    ]
    while engine.has_work:
        engine.step()
    for params, handle in running:
        assert handle.error is None, f"{params!r}: {handle.error.__cause__!r}"
        check(params, handle.result())
        assert "".join(event.delta for event in handle.events) == handle.result().text


#: What took a server down, or its whole batch: refused now, with the bound in the sentence.
POISON = [
    ({"policy": "daedal", "expansion_base": 200_000_000}, "expansion_base", "1048576"),
    ({"expansion_base": 10**20}, "expansion_base", "1048576"),
    (
        {"expansion_interval": 5e-324, "rho_low": 1.0, "rho_high": 1.0},
        "expansion_interval",
        "0.001",
    ),
    ({"policy": "fixed", "steps": 4, "temperature": 1e308}, "temperature", "100"),
    ({"cfg_scale": 1e38}, "cfg_scale", "100"),
    ({"stop": ["x" * 300_000]}, "stop", "1024"),
    ({"stop": ["x"] * 17}, "stop", "16"),
    ({"seed": 2**64}, "seed", "18446744073709551615"),
]


@pytest.mark.parametrize(("given_", "field", "bound"), POISON)
def test_poison_is_refused_with_the_bound_it_passes(
    given_: dict[str, Any], field: str, bound: str
) -> None:
    with pytest.raises(UserError, match=field) as refused:
        DecodeParams(**given_)
    assert bound in str(refused.value)
    assert len(str(refused.value)) < 500


def test_the_largest_insert_is_bounded_before_anything_is_made(runner: ModelRunner) -> None:
    """The request that took 3 GB, as far as its parameters are taken at all."""
    import tracemalloc

    params = DecodeParams(
        policy="daedal",
        signal="density",
        rho_low=0.0,
        rho_high=1.0,
        initial_length=8,
        max_new_tokens=LONGEST,
        block_length=None,
        temperature=1.0,
        seed=3,
        expansion_base=2**20,
    )
    engine = Engine(runner, SPECIAL, letters)
    tracemalloc.start()
    try:
        output = engine.finish([engine.submit(request_for("0", [4, 5], params))])[0]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(output.canvas_token_ids) <= LONGEST
    assert peak < 4 * 2**20, f"{peak} bytes for a canvas of {LONGEST}"
