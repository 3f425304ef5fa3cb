"""How the cores of a CPU share the work of a forward.

With threads inside the operations, all cores wait for each other at every one of them, and they
wait spinning. That pays where an operation is long. Where it is short and another process holds one
of the cores, each wait lasts until the scheduler takes that process off: a step of a small model
becomes 10 to 20 times slower. So:

- where there are rows enough, each core forwards rows of its own, in parts that fit its caches;
- else one core forwards them all, unless the operations are long enough to share. The projection
  onto a large vocabulary often is, where the products of the layers are not.

`python -m benchmarks.neighbour` measures both, alone and beside a busy process.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
#: Activations of so many positions stay within the caches of a core, or nearly.
CACHED_POSITIONS = 1024
#: With fewer for each, the cores do not forward rows of their own.
LEAST_POSITIONS = 96
#: Multiplications in a matrix product from which all cores share it.
LONG_OPERATION = 4e8


def shares(
    positions: Sequence[int], cores: int, work: Sequence[float] = (), longest: float = 0.0
) -> list[list[int]] | None:
    """Row numbers in parts, each for one core; None: all cores work on all rows together.

    Parts are of about equal `work` (by default, positions), as many as the cores can take at a
    time. `longest`: the multiplications in the largest matrix product of a forward of all rows.
    """
    work = work or positions
    total = sum(positions)
    everything = list(range(len(positions)))
    if cores == 1:
        return [everything]
    if len(positions) < cores or total < cores * LEAST_POSITIONS:
        return None if longest >= LONG_OPERATION else [everything]
    rounds = min(max(1, round(total / (cores * CACHED_POSITIONS))), len(positions) // cores)
    parts: list[list[int]] = [[] for _ in range(rounds * cores)]
    filled = [0.0] * len(parts)
    for row in sorted(everything, key=lambda row: -work[row]):
        lightest = filled.index(min(filled))
        parts[lightest].append(row)
        filled[lightest] += work[row]
    return parts


def at_once(work: Callable[[Item], Result], items: Sequence[Item], cores: int) -> list[Result]:
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
        # Holds for this thread, and for threads that start from now on. Asking for the number
        # fixes it for this thread, whatever is set elsewhere later.
        torch.set_num_threads(1)
        torch.get_num_threads()
        all_started.wait()

    list(pool.map(start, range(cores)))
    torch.set_num_threads(cores)
    return pool
