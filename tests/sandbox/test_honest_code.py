"""What an honest program gets from the sandbox, and what happens where no sandbox works."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rho_sandbox import (
    Backend,
    Limits,
    NoSandboxError,
    SandboxError,
    backends,
    probe_backend,
    run_python,
)
from rho_sandbox import run as sandbox_run
from rho_sandbox.launch import Setup
from tests.support import require, wait_until


def test_a_program_reads_its_input_and_writes_its_output(backend: Backend) -> None:
    result = run_python(
        "import sys\nprint(input()[::-1])\nprint('aside', file=sys.stderr)",
        stdin="grün\n",
        backend=backend,
    )
    assert (result.ok, result.exit_code) == (True, 0)
    assert (result.stdout, result.stderr) == ("nürg\n", "aside\n")
    assert (result.timed_out, result.killed_by, result.backend) == (False, None, backend)
    assert result.seconds > 0


def test_large_code_and_input_arrive_whole(backend: Backend) -> None:
    size = 3 << 20
    result = run_python(
        f"import sys\nx = {'a' * size!r}\nprint(len(x), len(sys.stdin.read()))",
        stdin="b" * size,
        backend=backend,
    )
    assert result.stdout == f"{size} {size}\n"


def test_tests_see_what_the_code_defined(backend: Backend) -> None:
    code = "def f(x):\n    return x + 1"
    assert run_python(code, tests="assert f(1) == 2", backend=backend).ok


def test_a_failed_test_is_named(backend: Backend) -> None:
    result = run_python(
        "def f(x):\n    return x", tests="assert f(1) == 1\nassert f(2) == 3", backend=backend
    )
    assert (result.ok, result.exit_code) == (False, 1)
    assert result.stderr.endswith("AssertionError\nin test: assert f(2) == 3\n")
    assert "sandbox" not in result.stderr


def test_a_syntax_error_is_a_failure_of_the_code(backend: Backend) -> None:
    result = run_python("def f(:", tests="pass", backend=backend)
    assert not result.ok and "SyntaxError" in result.stderr


def test_the_main_part_runs_for_a_program_and_not_for_a_module_under_test(backend: Backend) -> None:
    code = "if __name__ == '__main__':\n    print('main')"
    assert run_python(code, backend=backend).stdout == "main\n"
    assert run_python(code, tests="", backend=backend).stdout == ""


def test_what_standard_solutions_use_works(backend: Backend) -> None:
    code = """
    from __future__ import annotations
    import collections, dataclasses, datetime, decimal, functools, hashlib, heapq, itertools, json
    import math, multiprocessing, pickle, random, re, statistics, tempfile, threading, typing

    @dataclasses.dataclass(order=True)
    class Point:
        x: int
        y: int = 0

    def use():
        with tempfile.TemporaryFile() as file:
            file.write(pickle.dumps(Point(1, 2)))
            file.seek(0)
            assert pickle.load(file) == Point(1, 2)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(math.comb(5, 2)))
        thread.start()
        thread.join()
        with multiprocessing.Pool(2) as pool:
            answers += pool.map(abs, [-1, -2])
        return answers
    """
    result = run_python(
        textwrap.dedent(code), tests="assert use() == [10, 1, 2], use()", backend=backend
    )
    assert result.ok, result.stderr


def test_the_order_of_sets_is_the_same_in_every_run(backend: Backend) -> None:
    code = "print(list({'a', 'b', 'c', 'd', 'e'}))"
    assert len({run_python(code, backend=backend).stdout for _ in range(3)}) == 1


def test_many_threads_can_run_code_at_once(backend: Backend) -> None:
    def double(number: int) -> str:
        return run_python(f"print({number} * 2)", backend=backend).stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(double, range(12))) == [f"{2 * number}\n" for number in range(12)]


def test_no_file_descriptor_or_process_leaks(backend: Backend) -> None:
    before = open_files(), children()
    for code in ("pass", "import os; os._exit(3)", "while True: print('x' * 1000)"):
        run_python(code, backend=backend)
    assert (open_files(), children()) == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[str]:
    listed = Path("/proc/self/task").glob("*/children")
    return {pid for file in listed for pid in file.read_text().split()}


def test_everything_ends_when_the_grader_is_killed(backend: Backend, tmp_path: Path) -> None:
    """A grader that gets SIGKILL cannot clean up: the sandbox notices by itself."""
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'rhoeosorphan'); time.sleep(600)"
    call = f"run_python({code!r}, backend=Backend({str(backend)!r}))"
    program = f"from rho_sandbox import Backend, run_python\n{call}"
    grader = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until(lambda: running("rhoeosorphan"))
    finally:
        grader.send_signal(signal.SIGKILL)
        grader.wait()
    wait_until(lambda: not running("rhoeosorphan"))


def running(name: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/comm"):
        try:
            if entry.read_text().strip() == name:
                return True
        except OSError:
            continue
    return False


def test_it_works_without_privileges(backend: Backend, tmp_path: Path) -> None:
    """Root is the special case: as a plain user, the way leads through a user namespace."""
    python = Path("/usr/bin/python3")
    require(os.geteuid() == 0, "only root can become another user")
    require(shutil.which("setpriv") is not None, "setpriv is not installed")
    require(python.exists() and python_version(python) >= (3, 11), "no system Python 3.11 or later")
    package = Path(backends.__file__).parents[1]
    shared = Path("/tmp") / f"rho-eos-{os.getpid()}-{backend}"
    shutil.copytree(package, shared, ignore=shutil.ignore_patterns("checkpoints", "__pycache__"))
    program = textwrap.dedent(f"""
        from rho_sandbox import Backend, run_python
        result = run_python("import os; print(os.getuid())", backend=Backend("{backend}"))
        assert result.ok, result
        print(result.stdout, end="")
    """)
    subprocess.run(["chmod", "-R", "a+rX", shared], check=True)
    try:
        done = subprocess.run(
            ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", python, "-c", program],
            env={"PYTHONPATH": str(shared), "PATH": os.environ["PATH"]},
            cwd="/",
            capture_output=True,
            text=True,
        )
    finally:
        shutil.rmtree(shared)
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr


def python_version(python: Path) -> tuple[int, int]:
    program = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    major, minor = done.stdout.split()
    return int(major), int(minor)


@pytest.fixture
def nothing_works(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without bubblewrap whose kernel refuses new namespaces."""

    def refuse(setup: Setup, *_: object) -> None:
        raise SandboxError("unshare: Operation not permitted")

    monkeypatch.setattr(backends, "run_in", refuse)
    backends.probe.cache_clear()
    yield
    backends.probe.cache_clear()


def test_without_a_sandbox_code_is_refused(nothing_works: None) -> None:
    """The reason of each backend is named; bubblewrap's may be that it is not installed."""
    with pytest.raises(NoSandboxError, match=r"bubblewrap: .+namespaces: unshare"):
        probe_backend()
    with pytest.raises(NoSandboxError, match=r"namespaces: unshare"):
        run_python("print('ran')")
    with pytest.raises(NoSandboxError, match=r"namespaces .*unshare"):
        run_python("print('ran')", backend=Backend.NAMESPACES)


def test_without_a_sandbox_unsafe_must_be_asked_for(nothing_works: None) -> None:
    assert probe_backend(unsafe=True) is Backend.UNSAFE


def test_a_real_sandbox_is_preferred_even_where_unsafe_is_allowed(backend: Backend) -> None:
    assert probe_backend(unsafe=True) is probe_backend()
    assert probe_backend() is not Backend.UNSAFE


def test_a_missing_bubblewrap_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    backends.probe.cache_clear()
    try:
        reason = backends.unavailable(Backend.BUBBLEWRAP)
    finally:
        backends.probe.cache_clear()
    assert reason == "bwrap is not installed"


def test_a_sandbox_that_leaks_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The probe believes what it sees: a `bwrap` that confines nothing does not pass."""
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    backends.probe.cache_clear()
    try:
        assert backends.unavailable(Backend.BUBBLEWRAP) is not None
    finally:
        backends.probe.cache_clear()


def test_the_unsafe_backend_still_has_limits_and_an_honest_verdict() -> None:
    unsafe = Backend.UNSAFE
    assert run_python("def f(): return 1", tests="assert f() == 1", backend=unsafe).ok
    assert not run_python("import os; os._exit(0)", tests="assert 0", backend=unsafe).ok
    slow = run_python("import time; time.sleep(600)", limits=Limits(wall_seconds=1), backend=unsafe)
    assert slow.timed_out and slow.seconds < 60
    loop = run_python("while True: pass", limits=Limits(cpu_seconds=1), backend=unsafe)
    assert loop.killed_by == "cpu time"
    assert "MemoryError" in run_python("bytearray(10 << 30)", backend=unsafe).stderr


def test_without_confinement_a_daemon_that_holds_the_output_open_does_not_block() -> None:
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(20)\n"
    result = run_python(f"{daemon}print('done')", backend=Backend.UNSAFE)
    assert result.ok and result.stdout == "done\n"
    assert result.seconds < 15


@pytest.mark.parametrize("confined", [True, False])
def test_a_deep_tree_is_cleaned_up(
    backend: Backend, confined: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    deep = """
    import os
    top = os.getcwd()
    os.mkdir("shut")
    open("shut/file", "w").close()
    for _ in range(2500):
        os.mkdir("d")
        open("f", "w").close() if _ % 10 == 0 else None
        os.chdir("d")
    os.symlink(top, "link")
    os.chmod(f"{top}/shut", 0)
    """
    used = backend if confined else Backend.UNSAFE
    result = run_python(textwrap.dedent(deep), backend=used)
    assert result.ok, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_names_that_stand_in_the_way_are_cleaned_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Folders are moved before they are removed: to names that the code cannot have taken."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = """
    import os
    for number in range(50):
        os.makedirs(f".rho-eos-{number}/full/of/folders")
        open(f".rho-eos-{number + 50}", "w").close()
    os.makedirs("a/b/c/d")
    os.mkfifo("a/b/fifo")
    os.symlink("/", "a/root")
    os.makedirs(b"\\xff\\n/x/y")
    """
    result = run_python(textwrap.dedent(code), backend=Backend.UNSAFE)
    assert result.ok, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failure_of_the_grader_itself_ends_the_sandbox(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("the grader is out of memory")

    monkeypatch.setattr(sandbox_run.Watch, "follow", fail)
    start = time.monotonic()
    with pytest.raises(MemoryError, match="the grader"):
        run_python("import time; time.sleep(600)", backend=backend)
    assert time.monotonic() - start < 60
