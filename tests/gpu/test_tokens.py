"""The same tokens as on the CPU, on every path that a forward can take on a device."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import find_policy
from rho_eos.engine import runner as runner_module
from rho_eos.engine import store
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Handle
from rho_eos.engine.runner import ModelRunner
from tests.drawn import EVERY_CACHE, RULES, policies_for
from tests.gpu.pretend import pretend_gpu
from tests.gpu.steps import PROMPT, SPECIAL, ledgers, loaded, rows
from tests.reference.random_llada import random_llada
from tests.requests import request

SAMPLING: list[dict[str, Any]] = [
    {},
    {"cfg_scale": 1.0, "min_new_tokens": 6},
    {"temperature": 0.7, "top_p": 0.9, "seed": 3},
    {"temperature": 0.7, "top_k": 7, "seed": 4, "logprobs": 3},
]


@pytest.fixture(autouse=True)
def one_core(use_cores: Callable[[int], None]) -> None:
    use_cores(1)


def combinations(policy: str) -> list[DecodeParams]:
    """Every commit rule with every cache and some sampling, as far as the policy takes them."""
    found = []
    rules = RULES if find_policy(policy).rule is None else [None]  # None: it has one of its own
    for number, (commit, cache) in enumerate(product(rules, EVERY_CACHE)):
        sampling = SAMPLING[number % len(SAMPLING)]
        try:
            params = DecodeParams(
                policy=policy, commit=commit, cache=cache, max_new_tokens=16, **sampling
            )
            request("", PROMPT, params)
        except UserError:
            continue
        found.append(params)
    return found


def decode(runner: ModelRunner, asked: list[DecodeParams]) -> list[Any]:
    engine = Engine(runner, SPECIAL, lambda ids: "")
    handles: list[Handle] = [
        engine.submit(request(str(k), PROMPT[k % 8 : 20], params)) for k, params in enumerate(asked)
    ]
    return [output.canvas_token_ids for output in engine.finish(handles)]


@pytest.mark.parametrize("policy", policies_for(SPECIAL))
@pytest.mark.parametrize("path", ["varlen", "sdpa", "mps"])
def test_the_same_tokens_as_on_the_cpu(
    policy: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, where rounding decides nothing; so the varlen kernel has to take it here."""
    asked = combinations(policy)
    assert asked
    wanted = decode(ModelRunner(random_llada(seed=1), SPECIAL), asked)
    with pretend_gpu("mps" if path == "mps" else "cuda") as gpu:
        if path == "varlen":
            gpu.any_precision = True
            for module in (runner_module, store):
                monkeypatch.setattr(module, "wants_varlen_kernel", lambda *_: True)
        assert decode(loaded(random_llada(seed=1)), asked) == wanted
        assert torch.float64 not in gpu.ledger.dtypes
        names = {each.name for each in gpu.ledger.kernels}
    assert ("varlen_attn" in names) == (path == "varlen")


@pytest.mark.parametrize("fits", [False, True], ids=["not even a page", "some of it"])
def test_a_cache_without_room_on_the_device_fails_nothing(fits: bool) -> None:
    """Rows go on without it, or with what there is; as many positions as before run together."""
    window, exact = (
        [DecodeParams(cache=cache, max_new_tokens=24, threshold=0.99) for _ in range(4)]
        for cache in ("window", "none")
    )
    wanted = decode(ModelRunner(random_llada(seed=1), SPECIAL), window if fits else exact)
    with pretend_gpu() as gpu:
        runner = loaded(random_llada(seed=1))
        assert runner.stores is not None
        gpu.largest = 2**20  # as much as 2,048 positions take
        if not fits:
            runner.stores.page = 4096
        engine = Engine(runner, SPECIAL, lambda ids: "")
        handles = [
            engine.submit(request(str(k), PROMPT[k % 8 : 20], params))
            for k, params in enumerate(window)
        ]
        outputs = engine.finish(handles)
    assert [output.canvas_token_ids for output in outputs] == wanted
    assert engine.scheduler.max_positions == 16384
    assert (runner.stores.refused == 0) == fits


def test_top_p_that_needs_more_of_the_vocabulary_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second wait, and the tokens of a look at the whole vocabulary."""
    flat = {"temperature": 3.0, "top_p": 0.97, "seed": 5, "max_new_tokens": 24}
    sharp = {"temperature": 0.2, "top_p": 0.5, "seed": 5, "max_new_tokens": 24}
    asked = [DecodeParams(**flat), DecodeParams(**sharp), DecodeParams(max_new_tokens=24)]
    wanted = decode(ModelRunner(random_llada(seed=1), SPECIAL), asked)
    monkeypatch.setattr("rho_eos.engine.statistics.LIKELIEST", 12)  # of 40 tokens
    for params, waits in (({**flat, "top_p": 0.2}, 1), (flat, 2)):
        with pretend_gpu() as gpu:
            [step] = ledgers(gpu, loaded(random_llada(seed=1)), rows(3, **params), 1)
        assert step.syncs == waits, step.by_line()
    with pretend_gpu():
        assert decode(loaded(random_llada(seed=1)), asked) == wanted


def test_logits_are_made_in_few_chunks_where_there_is_memory() -> None:
    """And in the chunks that were asked for once it has run out."""
    counts = []
    for memory in (10**9, 10**4):
        with pretend_gpu(memory=memory) as gpu:
            runner = loaded(random_llada(seed=1))
            runner.chunk = 16
            batch = rows(4, policy="fixed", initial_length=64, max_new_tokens=64)
            [step] = ledgers(gpu, runner, batch, 1)
        heads = [each for each in step.kernels if each.line.startswith("engine/runner")]
        counts.append(len(heads))
    assert counts[0] == 1 < counts[1]
