"""More than one machine: the same engine and the same app on a Ray cluster."""

import logging
import os

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
