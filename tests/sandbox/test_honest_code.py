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

import psutil
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
from tests.support import processes, require, wait_until


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


@pytest.mark.parametrize(
    ("code", "tests", "said"),
    [
        ("def f(x):\n    return x + 1", "assert f(1) == 2", None),
        (
            "def f(x):\n    return x",
            "assert f(1) == 1\nassert f(2) == 3",
            "AssertionError\nin test: assert f(2) == 3\n",
        ),
        (
            "def f(x):\n    return 1 / x",
            "assert f(0)",
            "ZeroDivisionError: division by zero\nin test: assert f(0)\n",
        ),
        ("def f(:", "pass", "SyntaxError: invalid syntax\n"),
    ],
)
def test_a_failed_test_is_named(backend: Backend, code: str, tests: str, said: str | None) -> None:
    result = run_python(code, tests=tests, backend=backend)
    assert (result.ok, result.exit_code) == ((said is None), int(said is not None))
    assert result.stderr.endswith(said or "")
    assert ("in the solution: line 2, in f" in result.stderr) == ("/" in code)
    assert "sandbox" not in result.stderr and "inside" not in result.stderr


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
    this = psutil.Process()
    before = this.num_fds(), this.children()
    for code in ("pass", "import os; os._exit(3)", "while True: print('x' * 1000)"):
        run_python(code, backend=backend)
    assert (this.num_fds(), this.children()) == before


def test_everything_ends_when_the_grader_is_killed(backend: Backend, tmp_path: Path) -> None:
    """A grader that gets SIGKILL cannot clean up: the sandbox notices by itself."""
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'rhoeosorphan'); time.sleep(600)"
    call = f"run_python({code!r}, backend=Backend({str(backend)!r}))"
    program = f"from rho_sandbox import Backend, run_python\n{call}"
    grader = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until(lambda: "rhoeosorphan" in processes())
    finally:
        grader.send_signal(signal.SIGKILL)
        grader.wait()
    wait_until(lambda: "rhoeosorphan" not in processes())


def test_it_works_without_privileges(backend: Backend, tmp_path: Path) -> None:
    """Root is the special case: as a plain user, the way leads through a user namespace."""
    python = shutil.which("python3", path="/usr/bin")
    recent = [python or "false", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    require(os.geteuid() == 0, "only root can become another user")
    require(shutil.which("setpriv") is not None, "setpriv is not installed")
    require(subprocess.run(recent).returncode == 0, "no system Python 3.11 or later")
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


@pytest.fixture
def nothing_works(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without bubblewrap whose kernel refuses new namespaces."""

    def refuse(setup: Setup, *_: object) -> None:
        raise SandboxError("unshare: Operation not permitted")

    monkeypatch.setattr(backends, "run_in", refuse)
    backends.probe.cache_clear()
    yield
    backends.probe.cache_clear()


def test_without_a_sandbox_code_is_refused_unless_unsafe_is_asked_for(nothing_works: None) -> None:
    """The reason of each backend is named; bubblewrap's may be that it is not installed."""
    with pytest.raises(NoSandboxError, match=r"bubblewrap: .+namespaces: unshare"):
        probe_backend()
    with pytest.raises(NoSandboxError, match=r"namespaces: unshare"):
        run_python("print('ran')")
    with pytest.raises(NoSandboxError, match=r"namespaces .*unshare"):
        run_python("print('ran')", backend=Backend.NAMESPACES)
    assert probe_backend(unsafe=True) is Backend.UNSAFE


def test_a_real_sandbox_is_preferred_even_where_unsafe_is_allowed(backend: Backend) -> None:
    assert probe_backend(unsafe=True) is probe_backend() is not Backend.UNSAFE


#: A `bwrap` that confines nothing: the probe believes what it sees.
LEAKY = '#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n'


@pytest.mark.parametrize("leaky", [True, False])
def test_a_sandbox_that_is_missing_or_leaks_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, leaky: bool
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}" if leaky else str(tmp_path))
    if leaky:
        (tmp_path / "bwrap").write_text(LEAKY)
        (tmp_path / "bwrap").chmod(0o755)
    backends.probe.cache_clear()
    try:
        reason = backends.unavailable(Backend.BUBBLEWRAP)
    finally:
        backends.probe.cache_clear()
    assert reason is not None
    assert leaky or reason == "bwrap is not installed"


def test_the_unsafe_backend_still_has_limits_and_an_honest_verdict() -> None:
    unsafe = Backend.UNSAFE
    assert run_python("def f(): return 1", tests="assert f() == 1", backend=unsafe).ok
    assert not run_python("import os; os._exit(0)", tests="assert 0", backend=unsafe).ok
    slow = run_python("import time; time.sleep(600)", limits=Limits(wall_seconds=1), backend=unsafe)
    assert slow.timed_out and slow.seconds < 60
    loop = run_python("while True: pass", limits=Limits(cpu_seconds=1), backend=unsafe)
    assert loop.killed_by == "cpu time"
    assert "MemoryError" in run_python("bytearray(10 << 30)", backend=unsafe).stderr
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(20)\n"
    result = run_python(f"{daemon}print('done')", backend=unsafe)  # it holds the output open
    assert result.ok and result.stdout == "done\n" and result.seconds < 15


TREES = {
    "deep": """
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
    """,
    # Folders are moved before they are removed: to names that the code cannot have taken.
    "of names that stand in the way": """
    import os
    for number in range(50):
        os.makedirs(f".rho-eos-{number}/full/of/folders")
        open(f".rho-eos-{number + 50}", "w").close()
    os.makedirs("a/b/c/d")
    os.mkfifo("a/b/fifo")
    os.symlink("/", "a/root")
    os.makedirs(b"\\xff\\n/x/y")
    """,
}


@pytest.mark.parametrize("confined", [True, False])
@pytest.mark.parametrize("tree", TREES)
def test_any_tree_is_cleaned_up(
    backend: Backend, tree: str, confined: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    used = backend if confined else Backend.UNSAFE
    result = run_python(textwrap.dedent(TREES[tree]), backend=used)
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
