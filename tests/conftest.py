"""Fixtures that several rooms use."""

import collections
import gc
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from rho_sandbox import Backend
from tests.evals.command import Command, Result, Run
from tests.support import require_sandbox

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
    "test_checkpoint.py",
    "test_train.py",
    "test_against_reference.py",
    "test_ray_serve.py",
    "test_escapes.py",
    "test_run.py",
    "test_load.py",
    "test_faults.py",
    "test_hub.py",
    "test_benchmark.py",
    "test_graders.py",
    "test_verdict.py",
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


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say in the very last line what this machine could not try, and why."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    if skipped:
        reasons = collections.Counter(_reason(report) for report in skipped)
        each = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
        print(f"Not tried here, {len(skipped)} tests: {each}")


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]).removeprefix("Skipped: ")


@pytest.fixture(params=[Backend.BUBBLEWRAP, Backend.NAMESPACES], ids=str)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each sandbox that confines; where one does not work, its tests skip with the reason."""
    require_sandbox(request.param)
    return request.param


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


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, run in this process."""
    return Command(monkeypatch, capsys)


@pytest.fixture
def run(command: Command, byte_checkpoint: Path) -> Run:
    """The same, on a small checkpoint unless it names a model."""

    def run(*words: object, stdin: str = "", model: object = byte_checkpoint) -> Result:
        asks = words[:1] in (("generate",), ("chat",), ("watch",)) and model is not None
        return command(*words, *(("--model", model) if asks else ()), stdin=stdin)

    return run


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


@pytest.fixture(scope="session")
def llm(byte_checkpoint: Path) -> Any:
    from rho_eos import LLM

    return LLM(str(byte_checkpoint))


@pytest.fixture(scope="session")
def tiny() -> Any:
    from rho_eos import LLM

    return LLM("tiny")


def golden_parameters(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace's own, where the released rule is called a preset."""
    given = {"max_new_tokens": 256, **trace["parameters"]}
    if given.get("preset") == "released":
        given["policy"] = given.pop("preset")
    return given


@pytest.fixture
def own_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Policies, commit rules and caches that a test registers are gone after it, and so are the
    modules of plugins that it loads."""
    from rho_eos.decoding.registry import CACHES, COMMITS, POLICIES

    for registry in (POLICIES, COMMITS, CACHES):
        _own(registry, monkeypatch)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("rho_eos_plugin", "outside")):
            del sys.modules[name]


@pytest.fixture
def own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for tasks, of which nobody has looked yet for those of installed packages."""
    from rho_eos.evals.task import TASKS

    _own(TASKS, monkeypatch)
    monkeypatch.setattr(TASKS, "_others_loaded", False)


def _own(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.all()
    for name in ("_things", "_homes"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
