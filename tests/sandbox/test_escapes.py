"""Code that tries to break out, to use up the machine or to fake a pass.

Each hostile program prints `ESCAPED` only after it has done its harm. Harm that would leave a trace
is looked for from outside too. Afterwards the next sample must be graded as if nothing had been.
"""

import contextlib
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rho_sandbox as sandbox
from rho_sandbox import Backend, Limits, SandboxResult, run_python

SHORT = Limits(wall_seconds=60, cpu_seconds=1, memory_bytes=512 << 20)


@pytest.fixture(autouse=True)
def next_sample_is_graded(backend: Backend) -> Iterator[None]:
    """Whatever the hostile code did, the next honest one is graded as if nothing had been."""
    yield
    honest = "def double(x):\n    return 2 * x"
    assert run_python(honest, tests="assert double(4) == 8", backend=backend).ok
    assert not run_python(honest, tests="assert double(4) == 9", backend=backend).ok


def attack(backend: Backend, code: str, limits: Limits = SHORT) -> SandboxResult:
    result = run_python(code, limits=limits, backend=backend)
    assert "ESCAPED" not in result.stdout
    assert result.backend is backend
    return result


def processes_with(marker: str) -> list[int]:
    """Processes of this machine, in whatever namespace, whose name carries the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == marker:
                found.append(int(entry.name))
    return found


def test_no_file_of_the_home_folder_can_be_read(backend: Backend) -> None:
    with tempfile.NamedTemporaryFile(dir=Path.home(), prefix="rho-eos-secret-") as secret:
        secret.write(b"the secret")
        secret.flush()
        Path(secret.name).chmod(0o644)
        result = attack(backend, f"print(open({secret.name!r}).read(), 'ESCAPED')")
    assert "the secret" not in result.stdout
    assert "FileNotFoundError" in result.stderr or "PermissionError" in result.stderr


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/hostname", "/proc/1/environ", "/root", "/"])
def test_no_file_of_the_system_can_be_read(backend: Backend, path: str) -> None:
    attack(
        backend,
        f"import os\npath = {path!r}\n"
        "print(os.listdir(path) if os.path.isdir(path) else open(path).read())\nprint('ESCAPED')",
    )


def test_nothing_can_be_written_outside_the_work_folder(backend: Backend, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    targets = [
        str(tmp_path / "file"),
        "/rho-eos-file",
        "/usr/lib/rho-eos-file",
        "/dev/rho-eos-file",
        str(Path.home() / "rho-eos-file"),
    ]
    attack(
        backend,
        f"""
for path in {targets!r}:
    try:
        open(path, "w").write("harm")
        print("ESCAPED", path)
    except OSError:
        pass
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
    before = child.read_bytes(), child.stat()
    targets = [str(child), os.__file__]
    attack(
        backend,
        f"""
import os
for path in {targets!r}:
    for harm in (
        lambda: open(path, "a").write("#"),
        lambda: os.truncate(path, 0),
        lambda: os.chmod(path, 0o777),
        lambda: os.rename(path, path + "x"),
        lambda: os.unlink(path),
        lambda: os.utime(path),
    ):
        try:
            harm()
            print("ESCAPED", path)
        except OSError:
            pass
""",
    )
    after = child.stat()
    assert (child.read_bytes(), after.st_mode, after.st_mtime_ns) == (
        before[0],
        before[1].st_mode,
        before[1].st_mtime_ns,
    )


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


def test_the_environment_is_not_passed_on(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RHO_EOS_TEST_SECRET", "token-1234")
    result = attack(
        backend,
        """
import ctypes, os
print(sorted(os.environ))
for pid in range(1, 50):
    try:
        print(open(f"/proc/{pid}/environ").read(), "ESCAPED")
    except OSError:
        pass
""",
    )
    assert result.ok
    assert "token-1234" not in result.stdout and "RHO_EOS" not in result.stdout


def test_no_open_file_of_this_process_is_inherited(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")
    with (tmp_path / "secret").open() as file:
        os.set_inheritable(file.fileno(), True)
        result = attack(
            backend,
            """
import os
for fd in range(3, 256):
    try:
        os.set_blocking(fd, False)
        print(os.pread(fd, 100, 0))
    except OSError:
        pass
""",
        )
    assert "the secret" not in result.stdout


def test_a_fork_bomb_stays_within_the_process_limit(backend: Backend) -> None:
    start = time.monotonic()
    result = attack(
        backend,
        "import ctypes, os\nctypes.CDLL(None).prctl(15, b'rhoeosbomb')\n"
        "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        Limits(wall_seconds=2),
    )
    assert not result.ok and result.timed_out
    assert time.monotonic() - start < 60
    assert processes_with("rhoeosbomb") == []


def test_a_thread_bomb_stays_within_the_process_limit(backend: Backend) -> None:
    result = attack(
        backend,
        "import threading, time\nfor _ in range(500):\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\nprint('ESCAPED')",
    )
    assert not result.ok and "can't start new thread" in result.stderr


def test_ten_gigabytes_are_refused(backend: Backend) -> None:
    result = attack(backend, "x = bytearray(10 << 30)\nprint('ESCAPED')")
    assert not result.ok and "MemoryError" in result.stderr


def test_memory_that_grows_bit_by_bit_is_refused(backend: Backend) -> None:
    result = attack(
        backend,
        "x = []\nwhile True:\n    x.append(bytearray(16 << 20))",
        Limits(cpu_seconds=5, memory_bytes=256 << 20),
    )
    assert not result.ok and "MemoryError" in result.stderr


def test_the_work_folder_cannot_be_filled_beyond_its_size(backend: Backend) -> None:
    result = run_python(
        """
written = 0
try:
    for number in range(100):
        with open(f"file{number}", "wb", buffering=0) as file:
            written += file.write(bytes(1 << 20))
except OSError as error:
    print(error.strerror)
print(written)
""",
        limits=Limits(folder_bytes=8 << 20),
        backend=backend,
    )
    assert result.stdout.startswith("No space left on device")
    assert int(result.stdout.split()[-1]) <= 8 << 20


def test_a_file_cannot_grow_beyond_its_limit(backend: Backend) -> None:
    result = run_python(
        "open('big', 'wb').write(bytes(2 << 20))",
        limits=Limits(file_bytes=1 << 20),
        backend=backend,
    )
    assert not result.ok and "File too large" in result.stderr


def test_an_infinite_loop_runs_out_of_cpu_time(backend: Backend) -> None:
    result = attack(backend, "while True:\n    pass")
    assert not result.ok and result.timed_out
    assert result.killed_by == "cpu time"


def test_a_loop_that_ignores_the_warning_is_killed(backend: Backend) -> None:
    result = attack(
        backend,
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True:\n    pass",
    )
    assert not result.ok and result.killed_by in ("SIGKILL", "wall time")


def test_sleeping_runs_out_of_wall_time(backend: Backend) -> None:
    result = attack(backend, "import time\ntime.sleep(600)", Limits(wall_seconds=1))
    assert not result.ok and result.timed_out
    assert result.killed_by == "wall time" and result.exit_code is None
    assert result.seconds < 60


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_gigabyte_of_output_is_cut_off(backend: Backend, stream: str) -> None:
    result = attack(
        backend,
        f"import sys\nfor _ in range(1024):\n    sys.{stream}.write('x' * (1 << 20))",
        Limits(wall_seconds=120, cpu_seconds=20),
    )
    assert not result.ok and result.killed_by == "output"
    assert len(result.stdout) + len(result.stderr) < 2 << 20


def test_a_daemon_does_not_outlive_the_run(backend: Backend) -> None:
    result = run_python(
        """
import ctypes, os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"rhoeosdaemon")
        for number in range(1, 32):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        for fd in range(64):
            try:
                os.close(fd)
            except OSError:
                pass
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(0.2)
""",
        backend=backend,
    )
    assert result.ok
    assert result.seconds < 60
    assert processes_with("rhoeosdaemon") == []


def test_a_daemon_that_holds_the_output_open_does_not_block(backend: Backend) -> None:
    result = run_python(
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nprint('done')",
        backend=backend,
    )
    assert result.ok and result.stdout == "done\n"
    assert result.seconds < 60


def test_the_parent_cannot_be_killed(backend: Backend) -> None:
    result = attack(
        backend,
        f"""
import os, signal
for pid in ({os.getpid()}, os.getppid(), 1):
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGALRM):
        try:
            os.kill(pid, number)
        except OSError:
            pass
print("still here")
""",
    )
    assert result.ok and result.stdout == "still here\n"


def test_killing_everything_in_sight_is_not_a_pass(backend: Backend) -> None:
    attack(backend, "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getpid(), 9)")


@pytest.mark.parametrize(
    "leave",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        "raise SystemExit",
        "import os; os.execv('/bin/true', ['true'])",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; os.fork() or os._exit(0)",
        "import builtins, sys; sys.excepthook = lambda *a: None; quit = exit = None; sys.exit()",
        "import os, threading, time; threading.Timer(0, os._exit, [0]).start(); time.sleep(5)",
        "print('ok passed True 0 1\\nended 0 1\\nready')\nimport os; os._exit(0)",
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'ended 0 1\\n')\n"
        "    except OSError: pass\nos._exit(0)",
    ],
)
def test_ending_before_the_tests_is_not_a_pass(backend: Backend, leave: str) -> None:
    code = f"def f():\n    return 1\n{leave}"
    assert not run_python(code, tests="assert f() == 2", limits=SHORT, backend=backend).ok
    called = "def f():\n" + "\n".join(f"    {line}" for line in leave.splitlines())
    assert not run_python(called, tests="assert f() == 2", limits=SHORT, backend=backend).ok


@pytest.mark.parametrize(
    "trick",
    [
        "AssertionError = ValueError",
        "import builtins; builtins.AssertionError = SystemExit",
        "import os; os._exit = os.read = os.write = lambda *a: None",
        "import sys; sys.modules.clear()",
        "x = '''",
        "if True:",
        "import atexit, os; atexit.register(os._exit, 0)",
        "import gc, sys; sys.setprofile(lambda *a: None)",
    ],
)
def test_tampering_with_the_interpreter_is_not_a_pass(backend: Backend, trick: str) -> None:
    code = f"def f():\n    return 1\n{trick}"
    assert not run_python(code, tests="assert f() == 2", limits=SHORT, backend=backend).ok


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    return f(x + 1)\nf(0)",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return f(x + 1)\nf(0)",
        "import sys\nsys.setrecursionlimit(10**9)\nx = 0\nfor _ in range(10**6): x = [x]\nstr(x)",
    ],
)
def test_deep_recursion_only_hurts_itself(backend: Backend, code: str) -> None:
    result = attack(backend, code)
    assert not result.ok
    hurt = any(name in result.stderr for name in ("RecursionError", "MemoryError"))
    assert hurt or result.killed_by in ("SIGSEGV", "cpu time")


def test_a_crash_of_the_interpreter_is_reported_by_its_signal(backend: Backend) -> None:
    result = attack(backend, "import ctypes\nctypes.string_at(0)")
    assert (result.killed_by, result.exit_code) == ("SIGSEGV", -signal.SIGSEGV)


def test_any_signal_is_reported(backend: Backend) -> None:
    result = attack(backend, "import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 3)")
    assert result.killed_by == f"signal {signal.SIGRTMIN + 3}"


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
