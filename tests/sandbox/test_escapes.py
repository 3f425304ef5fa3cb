"""Code that tries to break out, to use up the machine or to fake a pass.

Each hostile program prints `ESCAPED` only after it has done its harm. Harm that would leave a trace
is looked for from outside too. Afterwards the next sample must be graded as if nothing had been.
"""

import ast
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import rho_sandbox as sandbox
from rho_sandbox import Backend, Limits, SandboxResult, run_python
from tests.sandbox.hostile import TRYING
from tests.support import processes

SHORT = Limits(wall_seconds=60, cpu_seconds=1, memory_bytes=512 << 20)
#: A program that begins with this can be found among the processes of the machine.
MARKED = "import ctypes, os, time\nctypes.CDLL(None).prctl(15, b'rhoeosattack')\n"


@pytest.fixture(autouse=True)
def nothing_is_left(backend: Backend) -> Iterator[None]:
    """The hostile code is gone, and the next honest one is graded as if nothing had been."""
    yield
    assert "rhoeosattack" not in processes()
    honest = "def double(x):\n    return 2 * x"
    assert run_python(honest, tests="assert double(4) == 8", backend=backend).ok
    assert not run_python(honest, tests="assert double(4) == 9", backend=backend).ok


def attack(backend: Backend, code: str, limits: Limits = SHORT) -> SandboxResult:
    result = run_python(TRYING + code, limits=limits, backend=backend)
    assert "ESCAPED" not in result.stdout
    assert result.backend is backend
    assert result.seconds < 90
    return result


#: Each prints what it can find of the grader.
READERS = {
    "its home": "print(open({secret!r}).read())",
    "its environment": """
import os
print(os.environ)
for pid in range(1, 50):
    try:
        print(open(f"/proc/{{pid}}/environ").read(), "ESCAPED")
    except OSError:
        pass
""",
    "its open files": """
import os
for fd in range(3, 256):
    try:
        os.set_blocking(fd, False)
        print(os.pread(fd, 100, 0))
    except OSError:
        pass
""",
}


@pytest.mark.parametrize("reader", READERS)
def test_nothing_of_the_grader_can_be_read(
    backend: Backend, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RHO_EOS_TEST", "the secret")
    with tempfile.NamedTemporaryFile(dir=Path.home(), prefix="rho-eos-secret-") as secret:
        secret.write(b"the secret")
        secret.flush()
        Path(secret.name).chmod(0o644)
        os.set_inheritable(secret.file.fileno(), True)
        result = attack(backend, READERS[reader].format(secret=secret.name))
    assert "the secret" not in result.stdout and "RHO_EOS" not in result.stdout
    assert result.ok or "FileNotFoundError" in result.stderr or "PermissionError" in result.stderr


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/hostname", "/proc/1/environ", "/root", "/"])
def test_no_file_of_the_system_can_be_read(backend: Backend, path: str) -> None:
    attack(
        backend,
        f"import os\npath = {path!r}\n"
        "print(os.listdir(path) if os.path.isdir(path) else open(path).read())\nprint('ESCAPED')",
    )


def test_the_machines_name_is_not_told(backend: Backend) -> None:
    code = "import os, socket\nprint(os.uname().nodename, socket.gethostname())"
    assert attack(backend, code).stdout == "sandbox sandbox\n"


def test_of_the_folder_that_python_lies_in_only_python_can_be_read(backend: Backend) -> None:
    """Not its programs, headers and manuals, nor what else was installed there."""
    prefix = Path(sys.base_prefix)
    own = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
    found = attack(
        backend,
        f"""
import os
for folder in ("bin", "share", "include", "etc", "conda-meta", "pkgs", "src", "var", ""):
    path = os.path.join({str(prefix)!r}, folder)
    try:
        names = os.listdir(path)
    except OSError:
        continue
    print([name for name in names if os.path.join(path, name) != {own!r}])
""",
    )
    left = {name for line in found.stdout.splitlines() for name in ast.literal_eval(line)}
    assert left <= {"bin", "lib", "lib64"}, left


def test_nothing_can_be_written_outside_the_work_folder(backend: Backend, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    folders = [tmp_path, Path("/"), Path("/usr/lib"), Path("/dev"), Path.home()]
    targets = [str(folder / "rho-eos-file") for folder in folders]
    attack(
        backend,
        f"""
for path in {targets!r}:
    must_fail(lambda: open(path, "w").write("harm"), path)
open("mine", "w").write("fine")
open("/dev/null", "w").write("fine")
""",
    )
    assert not any(Path(target).exists() for target in targets)


def test_the_work_folder_is_fresh_every_time_and_leaves_nothing(backend: Backend) -> None:
    before = set(Path(tempfile.gettempdir()).iterdir())
    for _ in range(2):
        result = run_python(
            "import os, tempfile\nprint(os.listdir('.'))\nopen('rho-eos-left', 'w').write('x')\n"
            "tempfile.mkstemp(prefix='rho-eos-left')",
            backend=backend,
        )
        assert result.ok and result.stdout == "[]\n"
    left = set(Path(tempfile.gettempdir()).iterdir()) - before
    assert not [path for path in left if path.name.startswith("rho-eos-left")]


def test_the_graders_own_files_cannot_be_changed(backend: Backend) -> None:
    child = Path(sandbox.__file__).with_name("inside") / "supervisor.py"
    before = child.read_bytes(), child.stat().st_mode, child.stat().st_mtime_ns
    attack(
        backend,
        f"""
import os
for path in {[str(child), os.__file__]!r}:
    for harm in (
        lambda: open(path, "a").write("#"),
        lambda: os.truncate(path, 0),
        lambda: os.chmod(path, 0o777),
        lambda: os.rename(path, path + "x"),
        lambda: os.unlink(path),
        lambda: os.utime(path),
    ):
        must_fail(harm, path)
""",
    )
    assert (child.read_bytes(), child.stat().st_mode, child.stat().st_mtime_ns) == before


@pytest.mark.parametrize("family", ["tcp", "unix", "abstract"])
def test_no_socket_of_this_machine_can_be_reached(
    backend: Backend, family: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    name = {"tcp": ("127.0.0.1", 0), "unix": str(tmp_path / "s"), "abstract": "\0rho-eos-test"}
    kind = socket.AF_INET if family == "tcp" else socket.AF_UNIX
    with socket.socket(kind) as server:
        server.bind(name[family])
        server.listen()
        if family == "unix":
            (tmp_path / "s").chmod(0o777)
        address = server.getsockname()
        attack(
            backend,
            f"import socket\ns = socket.socket({int(kind)})\ns.settimeout(2)\n"
            f"s.connect({address!r})\nprint('ESCAPED')",
        )
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


#: What takes too much, its limits, and what it is told; `killed_by` where it is not told but ended.
GREEDY: dict[str, tuple[str, Limits, set[str]]] = {
    "processes": (
        f"{MARKED}while True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        Limits(wall_seconds=2),
        {"wall time", "cpu time"},
    ),
    "threads": (
        "import threading, time\nfor _ in range(500):\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\nprint('ESCAPED')",
        SHORT,
        {"can't start new thread"},
    ),
    "ten gigabytes": ("x = bytearray(10 << 30)\nprint('ESCAPED')", SHORT, {"MemoryError"}),
    "memory bit by bit": (
        "x = []\nwhile True:\n    x.append(bytearray(16 << 20))",
        Limits(cpu_seconds=5, memory_bytes=256 << 20),
        {"MemoryError"},
    ),
    "a large file": (
        "open('big', 'wb').write(bytes(2 << 20))\nprint('ESCAPED')",
        Limits(file_bytes=1 << 20),
        {"File too large"},
    ),
    "a full folder": (
        "for number in range(9):\n"
        "    open(f'{number}', 'wb', buffering=0).write(bytes(1 << 20))\nprint('ESCAPED')",
        Limits(folder_bytes=8 << 20),
        {"No space left on device"},
    ),
    "a loop": ("while True:\n    pass", SHORT, {"cpu time"}),
    "a loop that ignores the warning": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True:\n    pass",
        SHORT,
        {"SIGKILL", "wall time"},
    ),
    "sleep": ("import time\ntime.sleep(600)", Limits(wall_seconds=1), {"wall time"}),
    **{
        f"a gigabyte of {stream}": (
            f"import sys\nfor _ in range(1024):\n    sys.{stream}.write('x' * (1 << 20))",
            Limits(wall_seconds=120, cpu_seconds=20),
            {"output"},
        )
        for stream in ("stdout", "stderr")
    },
    "recursion": (
        "def f(x):\n    return f(x + 1)\nf(0)",
        SHORT,
        {"RecursionError", "MemoryError", "SIGSEGV", "cpu time"},
    ),
    "recursion without a limit": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return f(x + 1)\nf(0)",
        SHORT,
        {"RecursionError", "MemoryError", "SIGSEGV", "cpu time"},
    ),
    "recursion of a list": (
        "import sys\nsys.setrecursionlimit(10**9)\nx = 0\nfor _ in range(10**6): x = [x]\nstr(x)",
        SHORT,
        {"RecursionError", "MemoryError", "SIGSEGV", "cpu time"},
    ),
    "a crash": ("import ctypes\nctypes.string_at(0)", SHORT, {"SIGSEGV"}),
    "any signal": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 3)",
        SHORT,
        {f"signal {signal.SIGRTMIN + 3}"},
    ),
    "everything in sight": (
        "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getpid(), 9)",
        SHORT,
        {"SIGKILL", "ProcessLookupError"},
    ),
}


@pytest.mark.parametrize("greed", GREEDY)
def test_who_takes_too_much_only_hurts_itself(backend: Backend, greed: str) -> None:
    code, limits, told = GREEDY[greed]
    result = attack(backend, code, limits)
    assert not result.ok
    assert result.killed_by in told or any(each in result.stderr for each in told), result
    assert result.timed_out == (result.killed_by in ("cpu time", "wall time"))
    assert len(result.stdout) + len(result.stderr) < 2 << 20


#: What leaves somebody behind, or sends signals; it ends as it wants, and nothing else does.
RESTLESS = {
    "a daemon that lets go of everything": f"""{MARKED}
import signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 32):
            attempt(lambda: signal.signal(number, signal.SIG_IGN))
        for fd in range(64):
            attempt(lambda: os.close(fd))
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(0.2)
print("done")
""",
    "a daemon that holds the output open": f"""{MARKED}
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
print("done")
""",
    "signals to the parent": f"""
import os, signal
for pid in ({os.getpid()}, os.getppid(), 1):
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGALRM):
        attempt(lambda: os.kill(pid, number))
print("done")
""",
}


@pytest.mark.parametrize("code", RESTLESS)
def test_nothing_outlives_the_run_and_the_parent_lives(backend: Backend, code: str) -> None:
    result = attack(backend, RESTLESS[code])
    assert result.ok and result.stdout == "done\n"


def test_code_has_no_privileges_and_cannot_gain_any(backend: Backend) -> None:
    attack(
        backend,
        """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, attempt in {
    "setuid": lambda: os.setuid(0),
    "chroot": lambda: os.chroot("/sandbox"),
    "mount": lambda: 1 / (libc.mount(b"x", b"/sandbox", b"tmpfs", 0, None) == 0),
    "userns mount": lambda: 1 / (
        libc.unshare(0x10020000) == 0 and libc.mount(b"x", b"/sandbox", b"tmpfs", 0, None) == 0
    ),
    "ptrace": lambda: 1 / (libc.ptrace(16, 1, None, None) == 0),
    "hostname": lambda: 1 / (libc.sethostname(b"x", 1) == 0),
}.items():
    try:
        attempt()
        print("ESCAPED", name)
    except (OSError, ZeroDivisionError):
        pass
""",
    )
