"""Fixtures that several rooms use."""

import gc
import signal
import ssl
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every process
# they start; some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Every HTTP client reads all certificate authorities, 20 ms each time; no server here speaks TLS.
ssl.create_default_context = cache(ssl.create_default_context)

# How long an example takes says more about the machine than about the code.
settings.register_profile("default", deadline=None)
settings.load_profile("default")

DATA = Path(__file__).parent / "data"
#: Files that take longest, in this order. Begun last, one of them would leave other workers with
#: nothing to do.
LONGEST = (
    "test_ray_data.py",
    "test_golden.py",
    "test_train.py",
    "test_against_reference.py",
    "test_ray_serve.py",
    "test_sandbox_escapes.py",
    "test_run.py",
    "test_load.py",
    "test_faults.py",
    "test_hub.py",
    "test_benchmark.py",
    "test_graders.py",
    "test_sandbox_verdict.py",
    "test_window_cache.py",
)


def pytest_configure() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """What all files import stays to the end: the collector need not look through it ever again."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))


@cache
def _load(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForMaskedLM

    import rho_eos.models.auto  # noqa: F401  registers the families

    return AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture
def use_cores() -> Iterator[Callable[[int], None]]:
    """Have torch use so many cores in this test."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def parity_model() -> Callable[[str], Any]:
    """One of the small published-layout checkpoints, by name; loaded once: leave it unchanged."""
    return lambda name: _load(DATA / "parity" / name)


@pytest.fixture(scope="session")
def golden_model() -> Any:
    return _load(DATA / "golden" / "checkpoint")


@pytest.fixture(scope="session")
def byte_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small random LLaDA and a byte tokenizer: the whole path, untrained."""
    from tests.checkpoints import write_checkpoint

    return write_checkpoint(tmp_path_factory.mktemp("byte-llada"))
