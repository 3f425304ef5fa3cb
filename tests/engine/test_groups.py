"""Rows are forwarded in groups that fit a CPU's caches: none is lost, none is moved."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rho_eos.engine.runner import groups


@given(st.lists(st.integers(1, 500), min_size=1), st.integers(1, 600))
def test_groups_keep_the_order_and_the_limit(costs: list[int], most: int) -> None:
    rows: Any = [SimpleNamespace(cost=cost) for cost in costs]
    cut = list(groups(rows, most))
    assert [row.cost for group in cut for row in group] == costs
    for group in cut:
        assert len(group) == 1 or sum(row.cost for row in group) <= most
    for group, following in pairwise(cut):
        assert sum(row.cost for row in group) + following[0].cost > most, "it would have fitted"
