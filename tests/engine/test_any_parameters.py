"""Any parameters, through the whole engine and a real model: no exception, no rule broken.

What the parameters' own checks let pass must run; what they refuse, they refuse in a sentence.
"""

import json
from typing import Any, get_origin

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.base.settings import bounds, choices, is_optional, kinds
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams, composed, parts_of
from rho_eos.decoding.policy import Policy
from rho_eos.decoding.registry import policies
from rho_eos.decoding.schema import AXES, choices_of
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Detail
from rho_eos.engine.runner import ModelRunner
from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from tests.attack import times
from tests.requests import request as request_for

END_OF_TURN, EOS, MASK, VOCABULARY = 1, 2, 3, 24
SPECIAL = SpecialTokens(mask=MASK, eos=EOS, end_of_turn=END_OF_TURN)
LONGEST = 40  # of a canvas: longer ones take longer, and no other path
SHORT = {"max_new_tokens": (1, LONGEST), "initial_length": (1, LONGEST)}
SHORT |= {"min_new_tokens": (0, LONGEST), "steps": (1, LONGEST)}


def runs_here(policy: type[Policy]) -> bool:
    """Ours, and one that this model can be decoded by."""
    try:
        policy.refuse(SPECIAL)
    except UserError:
        return False
    return policy.__module__.startswith("rho_")


OURS = sorted(name for name, policy in policies().items() if runs_here(policy))


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


def numbers(name: str, field: FieldInfo, whole: bool) -> st.SearchStrategy[Any]:
    limits = bounds(field)
    low, high = limits.get("ge", limits.get("gt")), limits.get("le", limits.get("lt"))
    assert low is not None and high is not None, f"{name} has no bounds"
    if name in SHORT:
        return st.integers(*SHORT[name])
    if whole:
        near = st.integers(int(low), int(min(high, low + LONGEST)))
        return near | st.sampled_from([int(low), int(high)]) | st.integers(int(low), int(high))
    open_ = "gt" in limits
    return st.floats(low, high, exclude_min=open_) | st.sampled_from(
        [high, 5e-324 if open_ and low == 0 else low, field.default]
    )


def values(name: str, field: FieldInfo) -> st.SearchStrategy[Any]:
    kind = next(kind for kind in kinds(field.annotation) if kind is not type(None))
    if choices(field):
        strategy: st.SearchStrategy[Any] = st.sampled_from(choices(field))
    elif kind is bool:
        strategy = st.booleans()
    elif kind in (int, float):
        strategy = numbers(name, field, kind is int)
    else:
        assert get_origin(kind) is tuple, f"{name} is of a kind that this test does not know"
        strategy = st.lists(st.text("abcdefgh", min_size=1, max_size=5), max_size=3)
    return strategy | st.none() if is_optional(field) else strategy


@st.composite
def any_parameters(draw: st.DrawFn) -> DecodeParams | None:
    axes: dict[str, str] = {"policy": draw(st.sampled_from(OURS))}
    if policies()[axes["policy"]].rule is None:
        axes["commit"] = draw(st.sampled_from(choices_of("commit")))
    axes["cache"] = draw(st.sampled_from(choices_of("cache")))
    given = {
        name: draw(values(name, field))
        for name, field in composed(parts_of(axes)).model_fields.items()
        if name not in AXES and (name in SHORT or draw(st.booleans()))
    }
    try:
        return DecodeParams(**axes, **given)
    except UserError:  # several of them do not go together; any other error is a failure
        return None


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
@given(st.lists(any_parameters(), min_size=1, max_size=4), st.integers(4, VOCABULARY - 1))
def test_nothing_raises_and_minimum_lengths_are_kept(
    runner: ModelRunner, batch: list[DecodeParams | None], first: int
) -> None:
    engine = Engine(runner, SPECIAL, letters)
    running = [
        (params, engine.submit(request_for(str(index), [first, 5], params), Detail.STEPS))
        for index, params in enumerate(batch)
        if params is not None
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
