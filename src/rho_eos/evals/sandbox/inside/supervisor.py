"""What runs inside the sandbox: a supervisor, and the worker it forks to run the untrusted code.

The supervisor is the first process of the sandbox: when it ends, the kernel ends every process in
there. It ends when the worker does, or when the other side of the control socket is shut or dies,
whichever is first. It alone reports the verdict. The worker has no access to the control socket.
To be believed that the tests passed, it must hand back a random token that waits, unread, in a
pipe: not in its memory, its source, its arguments or its environment. The trusted code reads it
after the last test, so leaving early, in whatever way and with whatever exit status and output,
is not a pass.
"""

# ruff: noqa: PTH108
# pathlib would take longer to import than this file to run, and it is imported for every run.

from __future__ import annotations

import contextlib
import marshal
import os
import resource
import select
import signal
import sys
import types

from . import isolate, seccomp

TYPE_CHECKING = False  # importing `typing` would take longer than all that this file does
if TYPE_CHECKING:
    from typing import Any, NoReturn

SETUP_FAILED = 125


def main() -> None:
    control = int(sys.argv[1])
    with os.fdopen(control, "rb", closefd=False) as stream:
        job = marshal.load(stream)
    try:
        confine(job)
    except OSError as error:
        os.write(control, f"error {error}\n".encode())
        os._exit(SETUP_FAILED)
    os.write(control, b"ready\n")
    supervise(control, job)


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


def supervise(control: int, job: dict[str, Any]) -> NoReturn:
    """Run the worker to its end, report how it ended, and take everything else down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 ignores signals it has no handler for
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_reader, False)
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    token_reader, token_writer = os.pipe()
    verdict_reader, verdict_writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (control, wake_reader, wake_writer, token_writer, verdict_reader):
            os.close(descriptor)
        work(job, token_reader, verdict_writer)
    os.close(verdict_writer)
    token = os.urandom(16)
    os.write(token_writer, token)
    while True:
        ready, _, _ = select.select([wake_reader, control], [], [])
        if control in ready:
            break  # nobody waits for the verdict any more
        os.read(wake_reader, 4096)
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            os.set_blocking(verdict_reader, False)
            report(control, os.waitstatus_to_exitcode(status), token, verdict_reader)
            break
    if job["backend"] == "unsafe":
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def report(control: int, exit_code: int, token: bytes, verdict: int) -> None:
    try:
        finished = exit_code == 0 and os.read(verdict, 64) == token
    except BlockingIOError:  # a process the worker left behind keeps the pipe open
        finished = False
    os.write(control, f"ended {exit_code} {int(finished)}\n".encode())


def work(job: dict[str, Any], token_reader: int, verdict_writer: int) -> NoReturn:
    """Run the code, then its tests, in one namespace; hand the token back after the last line."""
    read, write, leave = os.read, os.write, os._exit  # the code may replace what `os` holds
    redirect_stdin(job["stdin"])
    set_limits(job["limits"], strict=job["backend"] != "unsafe")
    sys.path += job["packages"]
    exit_code = 1
    try:
        module = types.ModuleType("__main__" if job["tests"] is None else "solution")
        sys.modules[module.__name__] = module
        sources = [("solution", job["code"]), ("tests", job["tests"] or "")]
        programs = [
            compile(source, f"<{name}>", "exec", dont_inherit=True) for name, source in sources
        ]
        for program in programs:
            exec(program, module.__dict__)
        flush()
        write(verdict_writer, read(token_reader, 64))
        exit_code = 0
    except SystemExit as stop:
        flush()
        exit_code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        flush()
        show(error, (job["tests"] or "").splitlines())
    finally:
        leave(exit_code & 0xFF)


def set_limits(limits: dict[str, int], *, strict: bool) -> None:
    caps = {
        "RLIMIT_CPU": limits["cpu_seconds"],
        "RLIMIT_AS": limits["memory_bytes"],
        "RLIMIT_FSIZE": limits["file_bytes"],
        "RLIMIT_NPROC": limits["processes"],
        "RLIMIT_NOFILE": 128,
        "RLIMIT_CORE": 0,
    }
    if not strict:
        del caps["RLIMIT_NPROC"]  # counts all of the user's processes where there is no namespace
    for name, cap in caps.items():
        try:
            # One second more before the signal that cannot be caught.
            resource.setrlimit(getattr(resource, name), (cap, cap + (name == "RLIMIT_CPU")))
        except (ValueError, OSError):
            if strict:
                raise


def redirect_stdin(text: str) -> None:
    """A file, not a pipe: the supervisor must not wait for code that does not read its input."""
    handle = os.open("stdin", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink("stdin")
    data = text.encode()
    while data:
        data = data[os.write(handle, data) :]
    os.lseek(handle, 0, os.SEEK_SET)
    os.dup2(handle, 0)
    os.close(handle)


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def show(error: BaseException, tests: list[str]) -> None:
    """The traceback without the frames of this file, then the test that was running."""
    with contextlib.suppress(Exception):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.__excepthook__(type(error), error.with_traceback(trace), trace)
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "<tests>":
                print("in test:", tests[trace.tb_lineno - 1].strip(), file=sys.__stderr__)
            trace = trace.tb_next
        flush()
