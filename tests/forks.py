"""`python …` in a process of its own that need not import torch and transformers first.

Importing them takes several seconds, more than most commands that tests run. One process per
worker has imported them, and is forked for every command: what the command does, its files, its
signals and its exit code are those of any other process. Nothing that is forked here has run a
command before, nor has it threads.

A command that depends on what is read when a library is imported (the variables of the Hub client,
which modules are imported at all) is for `subprocess`; so is one way of each kind, so that commands
are also seen to start from nothing.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

_LONGEST = 2**18  # of a request: words and variables
_server: "tuple[int, subprocess.Popen[bytes], socket.socket] | None" = None


class Fork:
    """What tests use of a `subprocess.Popen`, for `python -m MODULE …` and `python -c CODE …`."""

    def __init__(
        self,
        *words: object,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        start_new_session: bool = False,
    ) -> None:
        asked = {
            "words": [str(word) for word in words],
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "session": start_new_session,
        }
        with Path(os.devnull).open() as nothing:
            streams = [
                nothing.fileno() if stdin == subprocess.DEVNULL else stdin,
                1 if stdout is None else stdout,
                2 if stderr is None else stderr,
            ]
            ours, theirs = os.pipe()
            request = json.dumps(asked).encode()
            assert len(request) < _LONGEST
            socket.send_fds(_connected(), [request], [*streams, theirs])
        os.close(theirs)
        self._status = os.fdopen(ours, "rb", buffering=0)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                assert timeout is not None
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = int(self._status.readline())
        self._status.close()


def run(
    *words: object, stdin: int = subprocess.DEVNULL, cwd: Path | None = None, timeout: float = 300
) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` with everything captured."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Fork(*words, stdin=stdin, stdout=out.fileno(), stderr=err.fileno(), cwd=cwd)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(words, code, read(out), read(err))


def read(file: IO[bytes]) -> str:
    """All that was written to a file that a process was given."""
    file.seek(0)
    return file.read().decode()


def _connected() -> socket.socket:
    global _server
    if _server is None or _server[0] != os.getpid():
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
        _server = os.getpid(), process, ours
        atexit.register(_stop, process, ours)
    return _server[2]


def _stop(process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    connection.close()
    process.wait(60)


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for every request. Returns what to do, in a fork, or None when nobody asks any more.

    Between this loop and each command is one more process, which only waits and tells how it ended.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is for the tests
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that waited need no waiting for
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 4)
        if not request:
            return None
        if os.fork() == 0:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *streams, status = descriptors
            if (pid := os.fork()) == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for number, descriptor in enumerate(streams):
                    os.dup2(descriptor, number)
                for descriptor in descriptors:
                    os.close(descriptor)
                return dict(json.loads(request))
            for descriptor in streams:
                os.close(descriptor)
            try:
                os.write(status, b"%d\n" % pid)
                ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.write(status, b"%d\n" % ended)
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(asked: dict[str, Any]) -> None:
    """What differs between a new interpreter and this one."""
    if asked["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = asked["words"][1:] if asked["words"][0] == "-m" else ["-c", *asked["words"][2:]]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = open(number, "r" if number == 0 else "w", closefd=False)  # noqa: SIM115
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


if __name__ == "__main__":
    import runpy

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # as the commands do
    import rho_eos.cli
    import rho_eos.llm
    import rho_eos.server.app  # noqa: F401

    gc.freeze()  # what is imported stays, and is shared with the forks
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _become(asked)
        kind, what = asked["words"][:2]
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(what, {"__name__": "__main__"})
