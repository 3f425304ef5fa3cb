"""How the cores of a CPU share the rows of a batch.

With threads inside the operations all cores wait for each other at every one of them. Where there
are rows enough, each core forwards rows of its own instead, in parts that fit its caches.
"""

import threading
from collections.abc import Callable
from collections.abc import Sequence as Rows
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
#: Activations of so many positions stay within the caches of a core, or nearly.
CACHED_POSITIONS = 1024
#: With fewer for each, the cores work together on all rows. An estimate; it was not tuned.
LEAST_POSITIONS = 96


def shares(costs: Rows[int], cores: int) -> list[list[int]]:
    """Row numbers in parts of about equal cost, as many as the cores can take at a time.

    A single part if there is too little for every core to have some.
    """
    total = sum(costs)
    if len(costs) < cores or total < cores * LEAST_POSITIONS:
        return [list(range(len(costs)))]
    rounds = min(max(1, round(total / (cores * CACHED_POSITIONS))), len(costs) // cores)
    parts: list[list[int]] = [[] for _ in range(rounds * cores)]
    filled = [0] * len(parts)
    for row in sorted(range(len(costs)), key=lambda row: -costs[row]):
        lightest = filled.index(min(filled))
        parts[lightest].append(row)
        filled[lightest] += costs[row]
    return parts


def at_once(work: Callable[[Item], Result], items: Rows[Item], cores: int) -> list[Result]:
    """Results in the order of the items; an error is raised when nothing is running any more."""
    futures = [_workers(cores).submit(work, item) for item in items]
    wait(futures)
    return [future.result() for future in futures]


@cache
def _workers(cores: int) -> ThreadPoolExecutor:
    """Threads in which torch uses one core each."""
    pool = ThreadPoolExecutor(cores, thread_name_prefix="forward")
    all_started = threading.Barrier(cores)

    def start(_: int) -> None:
        torch.set_num_threads(1)  # for this thread, and for threads that start from now on
        torch.get_num_threads()  # a thread's first look sets it to what new threads get
        all_started.wait()

    list(pool.map(start, range(cores)))
    torch.set_num_threads(cores)
    return pool
