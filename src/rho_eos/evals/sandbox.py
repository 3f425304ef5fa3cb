"""Run model-written Python so that it can neither harm this machine nor lie about its result.

Covered, by the backends `bubblewrap` and `namespaces`:

- no network: no interface but an unconfigured loopback, and no way to the machine's own sockets;
- no file but the interpreter's own (standard library, installed packages, system libraries),
  read-only, and an empty work folder of limited size that lives in memory and is gone afterwards;
- nothing of this process: not its environment, open files, memory, source, or the power to signal
  it;
- limits on CPU time, memory and files per process, on the number of processes, the size of the
  work folder, the output and the wall time; whatever the code started is dead when `run_python`
  returns;
- a verdict the code cannot give itself by ending early (`os._exit(0)`, `sys.exit`, a signal), by
  printing, or by reading its source, arguments, environment or files. `sandbox_child` says how.

Not covered:

- code written against this grader. It shares an interpreter with its tests, as in the published
  benchmarks: it can return objects that claim to be equal to everything, read the expected values
  off the call stack, or look for the token among the open file descriptors;
- holes in the kernel, and side channels such as timing;
- the total memory of all processes of one run, which is `processes` times `memory_bytes` at
  worst;
- the backend `unsafe`, which only has limits and a throw-away folder, and is never chosen
  unasked.

`bubblewrap` is used where `bwrap` is installed and works. `namespaces` makes the same set-up with
the kernel's own calls and needs Landlock (Linux 5.13). Both work without privileges where the
system allows user namespaces. Started by root, they run the code as a user that nobody else is.
Which one works is found out by trying it (`probe_backend`), never by assumption.
"""

import marshal
import os
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache

from rho_eos.errors import UserError
from rho_eos.evals.sandbox_launch import (
    Backend,
    Setup,
    command,
    confinement,
    environment,
    possible_setups,
)

GRACE_SECONDS = 5.0  # for the sandbox to take itself down before it is killed from outside


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. CPU time, memory and file size are per process, the rest is for all."""

    wall_seconds: float = 60.0  # generous: a busy machine must not change a verdict
    cpu_seconds: int = 10  # the slowest reference solution, mbpp/123, takes four
    memory_bytes: int = 1 << 30
    processes: int = 16
    file_bytes: int = 16 << 20
    folder_bytes: int = 64 << 20
    output_bytes: int = 1 << 20


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """How a run ended. `ok` means that the last line of the code and of its tests was reached."""

    ok: bool
    exit_code: (
        int | None
    )  # minus the signal's number if a signal ended it; None if the run was cut off
    stdout: str
    stderr: str
    timed_out: bool
    killed_by: str | None  # "wall time", "cpu time", "output" or the name of a signal
    seconds: float
    backend: Backend


class SandboxError(RuntimeError):
    """The sandbox could not be set up: nothing was run, and nothing can be said about the code."""


def run_python(
    code: str,
    *,
    tests: str | None = None,
    stdin: str = "",
    limits: Limits = DEFAULT_LIMITS,
    backend: Backend | None = None,
) -> SandboxResult:
    """Run `code`, then `tests` in the same namespace, in a sandbox of its own.

    Without tests the code runs as `__main__`; with tests it is a module under test, so its
    `if __name__ == "__main__"` part stays out. The two are compiled apart: code that ends in the
    middle of a statement or a string cannot swallow its tests.
    """
    setup = working_setup(backend or probe_backend())
    return run_in(setup, code, tests, stdin, limits)


def probe_backend(unsafe: bool = False) -> Backend:
    """The first backend that works here; with `unsafe`, no confinement rather than an error."""
    reasons = []
    for backend in (Backend.BUBBLEWRAP, Backend.NAMESPACES):
        reason = unavailable(backend)
        if reason is None:
            return backend
        reasons.append(f"{backend}: {reason}")
    if unsafe:
        return Backend.UNSAFE
    raise UserError(
        f"no sandbox for model-written code works here ({'; '.join(reasons)}): install bubblewrap,"
        " allow user namespaces, or pass --unsafe-code to run it without confinement"
    )


def unavailable(backend: Backend) -> str | None:
    """Why a backend cannot be used here, None if it can."""
    outcome = probe(backend)
    return None if isinstance(outcome, Setup) else outcome


def working_setup(backend: Backend) -> Setup:
    outcome = probe(backend)
    if isinstance(outcome, str):
        raise UserError(f"the sandbox backend {backend} does not work here: {outcome}")
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


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def run_in(setup: Setup, code: str, tests: str | None, stdin: str, limits: Limits) -> SandboxResult:
    job = confinement(setup)
    job |= {"code": code, "tests": tests, "stdin": stdin, "limits": asdict(limits)}
    start = time.monotonic()
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory(prefix="rho-eos-") as folder, ours, theirs:
        try:
            process = subprocess.Popen(
                command(setup, theirs.fileno(), limits.folder_bytes),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                cwd=folder,
                env=environment(setup, folder),
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"{error.filename}: {error.strerror}") from None
        theirs.close()
        with process:
            run = Watch(process, ours, limits)
            run.send(marshal.dumps(job))
            run.follow(start + limits.wall_seconds)
    return run.result(setup.backend, time.monotonic() - start)


@dataclass(slots=True)
class Watch:
    """One running sandbox, seen from outside: its output, its report and its time."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    limits: Limits
    report: bytes = b""
    output: dict[int, bytearray] = field(default_factory=dict)
    cut_off: str | None = None

    def send(self, message: bytes) -> None:
        self.control.settimeout(self.limits.wall_seconds)
        with suppress(OSError):  # it did not start: it says why on stderr, and sends no report
            self.control.sendall(message)

    def follow(self, deadline: float) -> None:
        """Read until everything inside has ended; cut it off when its output or time is used up."""
        assert self.process.stdout is not None and self.process.stderr is not None
        streams = [self.process.stdout.fileno(), self.process.stderr.fileno()]
        self.output = {stream: bytearray() for stream in streams}
        with selectors.DefaultSelector() as selector:
            for source in (*streams, self.control.fileno()):
                os.set_blocking(source, False)
                selector.register(source, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for key, _ in ready:
                    if not self.read(key.fd):
                        selector.unregister(key.fd)
                if sum(map(len, self.output.values())) > self.limits.output_bytes:
                    deadline = self.cut("output", deadline)
                elif time.monotonic() >= deadline:
                    deadline = self.cut("wall time", deadline)

    def read(self, source: int) -> bool:
        """Take what a stream has to offer; false at its end."""
        try:
            data = os.read(source, 1 << 16)
        except OSError:
            return False
        if source == self.control.fileno():
            self.report += data
        elif self.cut_off is None:
            self.output[source] += data
        return bool(data)

    def cut(self, reason: str, deadline: float) -> float:
        """Ask the sandbox to end, with all in it; kill it if it has been asked before."""
        if self.cut_off is None:
            self.cut_off = reason
            self.control.shutdown(socket.SHUT_WR)
        elif time.monotonic() >= deadline:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            return deadline
        return time.monotonic() + GRACE_SECONDS

    def result(self, backend: Backend, seconds: float) -> SandboxResult:
        stdout, stderr = (data.decode("utf-8", "replace") for data in self.output.values())
        lines = self.report.decode().splitlines()
        if "ready" not in lines and self.cut_off is None:
            failure = lines[0].removeprefix("error ") if lines else last_line(stderr)
            raise SandboxError(failure or f"it ended with status {self.process.returncode}")
        exit_code, finished = None, False
        if self.cut_off is None and lines[-1].startswith("ended "):
            _, code, verdict = lines[-1].split()
            exit_code, finished = int(code), verdict == "1"
        return SandboxResult(
            ok=finished,
            exit_code=exit_code,
            stdout=stdout,
            stderr=stderr,
            timed_out=self.cut_off == "wall time" or exit_code == -signal.SIGXCPU,
            killed_by=self.cut_off or killer(exit_code),
            seconds=seconds,
            backend=backend,
        )


def killer(exit_code: int | None) -> str | None:
    """What ended a run that was not cut off from outside."""
    if exit_code is None:
        return "an unknown cause"
    if exit_code >= 0:
        return None
    if exit_code == -signal.SIGXCPU:
        return "cpu time"
    return signal.Signals(-exit_code).name
