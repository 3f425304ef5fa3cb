"""The cores of a CPU share the rows of a batch: none is lost, none waits for long."""

import threading
import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.cores import CACHED_POSITIONS, LEAST_POSITIONS, at_once, shares
from rho_eos.engine.request import Handle
from rho_eos.engine.row import Row
from rho_eos.engine.runner import ModelRunner
from tests.reference.bridge import SPECIAL
from tests.reference.random_llada import random_llada
from tests.requests import request as request_for


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.integers(1, 8))
def test_every_row_is_in_one_share(costs: list[int], cores: int) -> None:
    parts = shares(costs, cores)
    assert parts is not None
    assert sorted(row for part in parts for row in part) == list(range(len(costs)))
    assert all(parts) and (len(parts) == 1 or len(parts) % cores == 0)


@given(st.lists(st.integers(50, 100), min_size=16, max_size=200), st.sampled_from([2, 4]))
def test_shares_are_about_equal_and_fit_the_caches(costs: list[int], cores: int) -> None:
    filled = [sum(costs[row] for row in part) for part in shares(costs, cores) or ()]
    assert max(filled) - min(filled) <= max(costs)
    assert max(filled) <= 1.5 * CACHED_POSITIONS + max(costs)


def test_too_little_for_every_core_is_for_one_unless_its_operations_are_long() -> None:
    assert shares([500], 2) == [[0]]
    assert shares([LEAST_POSITIONS - 1] * 2, 2) == [[0, 1]]
    assert shares([500, 500, 500], 1) == [[0, 1, 2]]
    llada_8b, tiny = 4096 * 12288, 128 * 512
    assert shares([100], 2, longest=100 * llada_8b) is None, "all cores together"
    assert shares([500], 2, longest=500 * tiny) == [[0]]
    enough = shares([500] * 4, 2, longest=2000 * llada_8b)
    assert enough == [[0, 2], [1, 3]], "rows enough for each"


def test_shares_are_equal_in_work_not_in_rows() -> None:
    """Where the vocabulary is large, a row that reads many logits weighs more than a long one."""
    assert shares([200] * 4, 2, work=[9.0, 1.0, 1.0, 7.0]) == [[0], [3, 1, 2]]


def test_one_row_of_a_small_model_uses_one_core(use_cores: Callable[[int], None]) -> None:
    """Threads that wait for each other at every small operation stall beside a busy process."""
    use_cores(2)
    model = random_llada(seed=1, eos_share=0.3)
    seen: list[int] = []
    hook = model.lm_head.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    runner = ModelRunner(model, SPECIAL)
    rows = [Row(Handle(request_for("", [5, 6], DecodeParams())))]
    predictions = runner.predict(rows)
    runner.largest_weight = 10**8  # as if it were large
    together = runner.predict(rows)
    hook.remove()
    assert seen == [1, 2]
    assert predictions[0].token.tolist() == together[0].token.tolist()


def test_one_row_shares_a_large_vocabulary_and_nothing_else(
    use_cores: Callable[[int], None],
) -> None:
    use_cores(2)
    model = random_llada(seed=1, eos_share=0.3)
    seen: dict[str, int] = {}
    parts = {"layers": model.model.layers[0].self_attn, "vocabulary": model.lm_head}
    hooks = [
        part.register_forward_hook(lambda *_, name=name: seen.update({name: threads()}))
        for name, part in parts.items()
    ]
    threads = torch.get_num_threads
    runner = ModelRunner(model, SPECIAL)
    rows = [Row(Handle(request_for("", [5, 6], DecodeParams())))]
    alone = runner.predict(rows)
    assert seen == {"layers": 1, "vocabulary": 1}
    runner.weights_per_read = 10**8  # as if it were large
    shared = runner.predict(rows)
    assert seen == {"layers": 1, "vocabulary": 2}
    assert alone[0].token.tolist() == shared[0].token.tolist()
    for hook in hooks:
        hook.remove()


def test_each_worker_uses_one_core_and_the_caller_all(use_cores: Callable[[int], None]) -> None:
    use_cores(2)
    both = threading.Barrier(2)
    seen = at_once(lambda _: (both.wait(10), torch.get_num_threads()), range(2), 2)
    started_later: list[int] = []
    later = threading.Thread(target=lambda: started_later.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert [threads for _, threads in seen] == [1, 1]
    assert [torch.get_num_threads(), *started_later] == [2, 2]


def test_an_error_is_raised_once_nothing_is_running() -> None:
    done: list[str] = []

    def work(name: str) -> None:
        if name == "fails":
            raise RuntimeError("no memory")
        time.sleep(0.2)
        done.append(name)

    with pytest.raises(RuntimeError, match="no memory"):
        at_once(work, ["fails", "slow"], 2)
    assert done == ["slow"]
