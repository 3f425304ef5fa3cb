"""The sandbox backends that tests run on, and the command line."""

import pytest

from rho_sandbox import Backend, unavailable
from tests.evals.command import Command
from tests.support import require


@pytest.fixture(params=[Backend.BUBBLEWRAP, Backend.NAMESPACES], ids=str)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend that confines; the test skips, with the reason, where it does not work."""
    reason = unavailable(request.param)
    require(reason is None, f"the sandbox backend {request.param} does not work here: {reason}")
    return request.param


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)
