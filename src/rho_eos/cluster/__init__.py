"""More than one machine: the same engine and the same app on a Ray cluster.

Neither torch nor an engine is imported here: the process of `Attempts` does nothing but count, and
they would take seconds and half a gigabyte there.
"""

import logging
import os
from collections import Counter

# Ray reports usage to its makers unless told not to, before it is imported.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def start_cluster(processes: int) -> None:
    """Start a cluster of this machine alone, with room for so many processes with a model each."""
    import ray

    ray.init(
        address="local",
        num_cpus=max(os.cpu_count() or 1, processes),
        include_dashboard=False,
        logging_level=logging.WARNING,
        _node_ip_address="127.0.0.1",
    )


class Attempts:
    """Counts how often each request was begun. When an actor dies, Ray begins its requests again,
    however often that has happened before."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()

    def begin(self, ids: list[str]) -> list[int]:
        """Begin these once more, and say how often each was begun by now."""
        self._begun.update(ids)
        return [self._begun[id] for id in ids]
