"""Find the backend that works here, by trying it, and run code in it."""

import shutil
import tempfile
from functools import cache

from rho_sandbox.launch import Backend, Setup, possible_setups
from rho_sandbox.run import (
    DEFAULT_LIMITS,
    Limits,
    NoSandboxError,
    SandboxError,
    SandboxResult,
    last_line,
    run_in,
)


def run_python(
    code: str,
    *,
    tests: str | None = None,
    stdin: str = "",
    limits: Limits = DEFAULT_LIMITS,
    backend: Backend | None = None,
) -> SandboxResult:
    """Run `code`, then `tests` on what it defined, in a sandbox of its own.

    Without tests the code runs as `__main__`; with tests it is a module under test, so its
    `if __name__ == "__main__"` part stays out. The two run in two processes, and names that the
    tests do not bind are the code's: see the package's docstring.
    """
    setup = working_setup(backend or probe_backend())
    return run_in(setup, code, tests, stdin, limits)


def probe_backend(unsafe: bool = False) -> Backend:
    """The first backend that works here.

    Where none does, this raises `NoSandboxError`; with `unsafe` it chooses the backend that
    confines nothing instead.
    """
    reasons = []
    for backend in (Backend.BUBBLEWRAP, Backend.NAMESPACES):
        reason = unavailable(backend)
        if reason is None:
            return backend
        reasons.append(f"{backend}: {reason}")
    if unsafe:
        return Backend.UNSAFE
    raise NoSandboxError(
        f"no sandbox for model-written code works here ({'; '.join(reasons)}): install bubblewrap"
        " or allow user namespaces"
    )


def unavailable(backend: Backend) -> str | None:
    """Why a backend cannot be used here, None if it can."""
    outcome = probe(backend)
    return None if isinstance(outcome, Setup) else outcome


def working_setup(backend: Backend) -> Setup:
    outcome = probe(backend)
    if isinstance(outcome, str):
        raise NoSandboxError(f"the sandbox backend {backend} does not work here: {outcome}")
    return outcome


PROBE = """
import os, sys, time
assert not os.path.exists({canary!r}), "it shows files of the outside"
assert {canary!r} not in os.environ.values(), "it shows the environment"
assert os.getppid() <= 1, "it shows other processes"
started = 0
try:
    while started < {processes} * 2:
        if os.fork() == 0:
            time.sleep(60)
        started += 1
except OSError:
    pass
assert started < {processes} * 2, "it does not limit the number of processes"
"""


@cache
def probe(backend: Backend) -> Setup | str:
    """Try a backend on a program that looks for holes: the set-up that works, or why none does."""
    if backend is Backend.UNSAFE:
        return possible_setups(backend)[0]
    if backend is Backend.BUBBLEWRAP and shutil.which("bwrap") is None:
        return "bwrap is not installed"
    reasons = []
    with tempfile.NamedTemporaryFile(prefix="rho-eos-canary-") as canary:
        limits = DEFAULT_LIMITS
        program = PROBE.format(canary=canary.name, processes=limits.processes)
        for setup in possible_setups(backend):
            try:
                result = run_in(setup, program, None, "", limits)
            except SandboxError as error:
                reasons.append(str(error))
                continue
            if result.ok:
                return setup
            reasons.append(result.killed_by or last_line(result.stderr))
    return ", ".join(dict.fromkeys(reasons))
