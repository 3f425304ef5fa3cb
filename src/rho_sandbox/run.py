"""One run of a sandbox: start it, hand it its code, follow it to its end, say how it ended."""

import marshal
import os
import selectors
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from rho_sandbox.groups import joined, memory_group
from rho_sandbox.launch import Backend, Setup, command, confinement, environment
from rho_sandbox.scratch import scratch_folder

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

    @property
    def total_bytes(self) -> int:
        """Of all processes together, where a control group can limit that."""
        return 2 * self.memory_bytes + self.folder_bytes  # the code and its tests, and their files


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """How a run ended. `ok` means that the last line of the code and of its tests was reached."""

    ok: bool
    exit_code: int | None  # minus the signal's number if one ended it; None if it was cut off
    stdout: str
    stderr: str
    timed_out: bool
    killed_by: str | None  # "wall time", "cpu time", "output" or the name of a signal
    seconds: float
    backend: Backend


class SandboxError(RuntimeError):
    """The sandbox could not be set up: nothing was run, and nothing can be said about the code."""


class NoSandboxError(SandboxError):
    """No backend confines code on this machine, or the one that was asked for does not."""


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def message(content: str | dict[str, Any]) -> bytes:
    data = marshal.dumps(content)
    return len(data).to_bytes(8, "little") + data


def run_in(setup: Setup, code: str, tests: str | None, stdin: str, limits: Limits) -> SandboxResult:
    """One run, from the start of its sandbox to the end of all that was in it."""
    job = confinement(setup)
    job |= {"code": code, "has_tests": tests is not None, "stdin": stdin, "limits": asdict(limits)}
    start = time.monotonic()
    ours, theirs = socket.socketpair()
    with scratch_folder() as folder, memory_group(limits.total_bytes) as group, ours, theirs:
        try:
            process = subprocess.Popen(
                joined(group, command(setup, theirs.fileno(), limits.folder_bytes)),
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
        with process, ours:  # whatever happens here, closing our end is the end of the sandbox
            run = Watch(process, ours, limits)
            run.send(message(job) + (b"" if tests is None else message(tests)))
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
        """Read until everything inside has ended; cut it off when its output or time is used up.

        The control socket ends last: the processes of the sandbox are dead by then.
        """
        assert self.process.stdout is not None and self.process.stderr is not None
        streams = [self.process.stdout.fileno(), self.process.stderr.fileno()]
        self.output = {stream: bytearray() for stream in streams}
        with selectors.DefaultSelector() as selector:
            for source in (*streams, self.control.fileno()):
                os.set_blocking(source, False)
                selector.register(source, selectors.EVENT_READ)
            while self.control.fileno() in selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for key, _ in ready:
                    if not self.read(key.fd):
                        selector.unregister(key.fd)
                if sum(map(len, self.output.values())) > self.limits.output_bytes:
                    deadline = self.cut("output", deadline)
                elif time.monotonic() >= deadline:
                    deadline = self.cut("wall time", deadline)
        for stream in streams:
            while self.read(stream):
                pass

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
            with suppress(OSError):
                self.control.shutdown(socket.SHUT_WR)
        elif time.monotonic() >= deadline:
            with suppress(OSError):
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
    """Which signal or limit ended a run that was not cut off from outside."""
    if exit_code is None:
        return "an unknown cause"
    if exit_code >= 0:
        return None
    if exit_code == -signal.SIGXCPU:
        return "cpu time"
    known = {number.value: number.name for number in signal.Signals}
    return known.get(-exit_code, f"signal {-exit_code}")
