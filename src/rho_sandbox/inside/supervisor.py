"""The first process of the sandbox: confines itself, starts the others, reports how they ended.

When it ends, the kernel ends every process in there. It ends when the verdict is known, or when
the other side of the control socket is shut or dies, whichever is first.

It starts the untrusted code (`solution.py`) and, where there are tests, a second process for those
(`judge.py`). The tests arrive only after the first has been started: they were never in its
memory. The verdict comes from the second, on a pipe that the first never had.
"""

# ruff: noqa: PTH102, PTH106
# pathlib would take longer to import than this file to run, and it is imported for every run.

from __future__ import annotations

import marshal
import os
import resource
import select
import signal
import sys
import time

from . import isolate, judge, output, plain, seccomp, solution

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

SETUP_FAILED = 125
PATIENCE_SECONDS = 1.0  # for the second process to end when the first has


def main() -> None:
    control = int(sys.argv[1])
    job = receive(control)
    try:
        confine(job)
    except OSError as error:
        os.write(control, f"error {error}\n".encode())
        os._exit(SETUP_FAILED)
    os.write(control, b"ready\n")
    Supervisor(control, job).run()


def receive(control: int) -> Any:
    """One message, and no byte of the following one, which the code must not see."""

    def read(count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = os.read(control, count - len(data))
            if not part:
                os._exit(SETUP_FAILED)
            data += part
        return data

    return marshal.loads(read(int.from_bytes(read(8), "little")))


def confine(job: dict[str, Any]) -> None:
    """Shut this process in, as far as the backend that started it has not done so already."""
    if job["backend"] == "unsafe":
        return
    readable, devices = job["readable"], job["devices"]
    if job["backend"] == "namespaces":
        if isolate.landlock_version() == 0:
            raise OSError(0, "the kernel has no Landlock")
        isolate.enter_namespaces(user_namespace=job["user_namespace"])
        become_first_process()
        isolate.enter_new_root(readable, devices, job["links"], job["limits"]["folder_bytes"])
    else:
        isolate.cover_work_folder(job["limits"]["folder_bytes"])
    isolate.leave_keyrings()
    isolate.drop_privileges(job["uid"])
    if version := isolate.landlock_version():
        isolate.restrict_files(version, readable, devices)
    seccomp.refuse_calls(isolate.libc)


def become_first_process() -> None:
    """Go on as process 1 of the new namespace; the process left behind waits for it to end."""
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


class Supervisor:
    """The processes of one run, and how those that have ended did."""

    def __init__(self, control: int, job: dict[str, Any]) -> None:
        self.control = control
        self.job = job
        self.ended: dict[int, int] = {}

    def run(self) -> NoReturn:
        """Run code and tests to their end, report how they ended, and take everything else down."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 ignores what it has no handler for
        self.wake_reader, self.wake_writer = os.pipe()
        os.set_blocking(self.wake_reader, False)
        os.set_blocking(self.wake_writer, False)
        signal.set_wakeup_fd(self.wake_writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        outcome = self.with_tests() if self.job["has_tests"] else self.without_tests()
        if outcome is not None:
            os.write(self.control, f"ended {outcome[0]} {int(outcome[1])}\n".encode())
        if self.job["backend"] == "unsafe":
            os.killpg(0, signal.SIGKILL)
        os._exit(0)

    def without_tests(self) -> tuple[int, bool] | None:
        """The code's exit status and whether its last line was reached; None if none is wanted."""
        reader, writer = os.pipe()
        code = self.start(lambda: self.work(plain.Wire(reader, writer)))
        os.close(writer)
        if not self.wait_for(code):
            return None
        return self.ended[code], self.ended[code] == 0 and read_now(reader) == solution.FINISHED

    def with_tests(self) -> tuple[int, bool] | None:
        """An exit status, and whether all tests passed."""
        empty = empty_folder()
        questions, answers = os.pipe(), os.pipe()
        near, far = plain.Wire(answers[0], questions[1]), plain.Wire(questions[0], answers[1])

        def serve() -> None:
            os.close(empty)
            near.close()
            self.work(far)

        code = self.start(serve)
        far.close()
        tests = receive(self.control)
        reader, writer = os.pipe()
        judging = self.start(lambda: self.judge(tests, near, writer, empty))
        os.close(writer)
        near.close()
        if not self.wait_for(code, judging):
            return None
        if not self.wait_for(judging, seconds=PATIENCE_SECONDS) or judging not in self.ended:
            return self.ended.get(code, 1), False
        if self.ended[judging] == judge.SOLUTION_GONE:
            self.wait_for(code, seconds=PATIENCE_SECONDS)
            return self.ended.get(code, 1), False
        passed = self.ended[judging] == 0 and read_now(reader) == judge.PASSED
        return self.ended[judging], passed

    def start(self, run: Callable[[], None]) -> int:
        """A process that runs untrusted code or tests, without what belongs to this one."""
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for descriptor in (self.control, self.wake_reader, self.wake_writer):
                    os.close(descriptor)
                sys.path += self.job["packages"]
                run()
            except BaseException as error:
                output.show(error, [])
            finally:
                os._exit(1)
        return pid

    def work(self, wire: plain.Wire) -> None:
        solution.redirect_stdin(self.job["stdin"])
        self.limit()
        if self.job["backend"] != "unsafe":
            isolate.keep_signals_inside()
        solution.work(self.job["code"], self.job["has_tests"], wire)

    def judge(self, tests: str, wire: plain.Wire, verdict: int, folder: int) -> None:
        os.fchdir(folder)
        os.environ["HOME"] = os.environ["TMPDIR"] = os.devnull  # below it there can be no file
        self.limit()
        judge.judge(tests, wire, verdict)

    def limit(self) -> None:
        set_limits(self.job["limits"], strict=self.job["backend"] != "unsafe")

    def wait_for(self, *pids: int, seconds: float | None = None) -> bool:
        """Wait until one of these has ended or time is up; false if the grader has gone."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            self.reap()
            if any(pid in self.ended for pid in pids):
                return True
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return True
            ready, _, _ = select.select([self.wake_reader, self.control], [], [], left)
            if self.control in ready:
                return False
            if ready:
                os.read(self.wake_reader, 4096)

    def reap(self) -> None:
        """Note which processes have ended, also those whose parents ended before them."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.ended[pid] = os.waitstatus_to_exitcode(status)


def empty_folder() -> int:
    """A folder that has no name any more: nothing can ever be put into it, by nobody."""
    os.mkdir("tests")
    handle = os.open("tests", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir("tests")
    return handle


def read_now(descriptor: int) -> bytes:
    """What waits in a pipe. A process that the code left behind may keep its other end open."""
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 64)
    except BlockingIOError:
        return b""


def set_limits(limits: dict[str, int], *, strict: bool) -> None:
    caps = {
        "RLIMIT_CPU": limits["cpu_seconds"],
        "RLIMIT_AS": limits["memory_bytes"],
        "RLIMIT_FSIZE": limits["file_bytes"],
        "RLIMIT_NPROC": limits["processes"],
        "RLIMIT_NOFILE": 128,
        "RLIMIT_CORE": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    if not strict:
        del caps["RLIMIT_NPROC"]  # counts all of the user's processes where there is no namespace
    for name, cap in caps.items():
        try:
            # One second more before the signal that cannot be caught.
            resource.setrlimit(getattr(resource, name), (cap, cap + (name == "RLIMIT_CPU")))
        except (AttributeError, ValueError, OSError):
            if strict:
                raise
