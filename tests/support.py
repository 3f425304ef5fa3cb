"""What tests of every room share."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rho_sandbox import Backend, unavailable


def require(condition: bool, reason: str) -> None:
    """Skip, with the reason, where what a test needs is absent; fail where it must be there."""
    if condition:
        return
    if os.environ.get("RHO_EOS_REQUIRE_ALL") == "1":
        pytest.fail(f"RHO_EOS_REQUIRE_ALL is set, but {reason}")
    pytest.skip(reason)


def require_sandbox(*backends: Backend) -> None:
    """Skip where none of these confines code; without a name, where none at all does."""
    wanted = backends or (Backend.BUBBLEWRAP, Backend.NAMESPACES)
    reasons = {each: unavailable(each) for each in wanted}
    listed = "; ".join(f"the sandbox {each} does not work: {why}" for each, why in reasons.items())
    require(None in reasons.values(), listed)


def wait_until(condition: Callable[[], object], seconds: float = 60, what: str = "") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or condition}"
        time.sleep(0.02)


def processes() -> set[str]:
    """The names of all processes of this machine, in whatever namespace."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):  # it has ended
            found.add(entry.read_text().strip())
    return found


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size`: a write is cut off as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
