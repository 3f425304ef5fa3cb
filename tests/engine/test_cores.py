"""The cores of a CPU share the rows of a batch: none is lost, none waits for long."""

import threading
import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rho_eos.engine.cores import CACHED_POSITIONS, LEAST_POSITIONS, at_once, shares


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.integers(1, 8))
def test_every_row_is_in_one_share(costs: list[int], cores: int) -> None:
    parts = shares(costs, cores)
    assert sorted(row for part in parts for row in part) == list(range(len(costs)))
    assert all(parts) and (len(parts) == 1 or len(parts) % cores == 0)


@given(st.lists(st.integers(50, 100), min_size=16, max_size=200), st.sampled_from([2, 4]))
def test_shares_are_about_equal_and_fit_the_caches(costs: list[int], cores: int) -> None:
    filled = [sum(costs[row] for row in part) for part in shares(costs, cores)]
    assert max(filled) - min(filled) <= max(costs)
    assert max(filled) <= 1.5 * CACHED_POSITIONS + max(costs)


def test_too_little_is_not_shared() -> None:
    assert shares([500], 2) == [[0]]
    assert shares([LEAST_POSITIONS - 1] * 2, 2) == [[0, 1]]
    assert shares([500, 500, 500], 1) == [[0, 1, 2]]


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
