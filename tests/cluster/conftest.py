"""One local Ray cluster for all tests of this folder."""

import importlib.util
import os
from collections.abc import Iterator

import pytest

from tests.support import require


@pytest.fixture(scope="package")
def cluster() -> Iterator[str]:
    """Its address; this process is connected to it."""
    for package in ("ray", "pyarrow", "pandas"):
        require(importlib.util.find_spec(package) is not None, f"{package} is not installed")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    ray.init(
        address="local",
        num_cpus=4,  # two for each of two commands
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
