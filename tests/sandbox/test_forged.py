"""More ways to forge a pass, one process looking for a hold in the other.

`test_verdict.py` holds the first of each kind. Here the solution goes further: into memory
and pipes, through the objects that tests hand over, and through the control flow of the tests.
"""

import secrets
import textwrap

import pytest

from rho_sandbox import DEFAULT_LIMITS, Backend, Limits, SandboxResult, run_python

SHORT = Limits(wall_seconds=3, cpu_seconds=2, memory_bytes=512 << 20)

#: Each is run before `f` is defined, which is wrong: it returns what `found` holds, or 1.
TRICKS = {
    "frames: locals, globals and builtins of every thread": """
        import sys, types
        def poison(space):
            for name, value in list(space.items()):
                try:
                    if isinstance(value, bool):
                        space[name] = not value
                    elif isinstance(value, types.FunctionType):
                        space[name] = lambda *a, **k: True
                except Exception:
                    pass
        for frame in list(sys._current_frames().values()):
            while frame is not None:
                poison(frame.f_locals)
                if "solution" not in frame.f_globals.get("__name__", ""):
                    poison(dict(frame.f_globals))
                frame = frame.f_back
    """,
    "frames: those of a traceback, back to the first": """
        try:
            1 / 0
        except ZeroDivisionError as error:
            frame = error.__traceback__.tb_frame
            while frame is not None:
                job = getattr(frame.f_locals.get("self"), "job", None)
                if isinstance(job, dict):
                    found.append(job.get("tests"))
                    job["has_tests"] = False
                    job["tests"] = ""
                frame = frame.f_back
    """,
    "builtins: what imports and builds classes": """
        import builtins
        class Yes:
            __getattr__ = lambda self, name: Yes()
            __call__ = lambda self, *a, **k: Yes()
            __eq__ = lambda self, other: True
            __hash__ = lambda self: 0
        real = builtins.__import__
        builtins.__import__ = lambda name, *a, **k: Yes() if name == "math" else real(name, *a, **k)
        builtins.bool = builtins.all = builtins.isinstance = lambda *a: True
    """,
    "builtins: the comparison of integers, in the type itself": """
        import ctypes
        slots = ctypes.cast(id(int), ctypes.POINTER(ctypes.c_void_p))
        compare = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.py_object] * 2, ctypes.c_int)
        keep = compare(lambda a, b, operation: True)
        slots[25] = ctypes.cast(keep, ctypes.c_void_p).value
    """,
    "builtins: the integer 2 becomes a 1": """
        import ctypes
        ctypes.c_uint32.from_address(id(2) + 24).value = 1
    """,
    "gc: every talker may do everything and asks for the tests": """
        import gc
        for thing in gc.get_objects():
            if type(thing).__name__ == "Peer":
                thing.permit = lambda *a: None
                thing.failed = thing.broken = None
                for question in (("name", "expected"), ("getattr", "tests", "expected")):
                    try:
                        found.append(thing.request(*question))
                    except BaseException:
                        pass
    """,
    "gc: a callback that rewrites every dictionary": """
        import gc
        def rewrite(phase, info):
            for thing in gc.get_objects()[:20000]:
                if isinstance(thing, dict) and "has_tests" in thing:
                    thing.update(has_tests=False, tests="", code="")
        gc.callbacks.append(rewrite)
        gc.set_threshold(1)
        gc.collect()
    """,
    "atexit: finalizers and hooks that report a pass": """
        import atexit, os, sys, threading, weakref
        def report(*a):
            for fd in range(3, 64):
                try:
                    os.write(fd, b"passed")
                except OSError:
                    pass
            os._exit(0)
        class Last: __del__ = report
        keep = Last()
        weakref.finalize(keep, report)
        atexit.register(report)
        threading._register_atexit(report)
        sys.excepthook = sys.unraisablehook = threading.excepthook = report
    """,
    "threads: one answers for the interpreter": """
        import os, struct, threading
        def answer():
            for fd in range(3, 16):
                try:
                    os.set_blocking(fd, False)
                    os.read(fd, 1 << 16)
                except OSError:
                    pass
                for value in (b"=1", b"=N", b"=o\\0\\0\\0\\0N"):
                    try:
                        os.write(fd, struct.pack("<I", len(value)) + value)
                    except OSError:
                        pass
        threading.Thread(target=lambda: [answer() for _ in range(1000)], daemon=True).start()
    """,
    "threads: the main one is interrupted": """
        import _thread, threading
        threading.Timer(0.02, _thread.interrupt_main).start()
    """,
    "sys.modules: every module is agreeable": """
        import sys, types
        class Agreeable(types.ModuleType):
            PASSED = FINISHED = b"passed"
            def __getattr__(self, name):
                return lambda *a, **k: b"passed"
        for name in list(sys.modules):
            if name not in ("sys", "builtins", "solution"):
                sys.modules[name] = Agreeable(name)
    """,
    "sys.modules: files that the tests might import": """
        import os
        for name in ("math", "unittest", "numpy", "sitecustomize", "usercustomize", "conftest"):
            for folder in (".", os.environ["HOME"], "/tmp", "/dev/shm"):
                try:
                    open(f"{folder}/{name}.py", "w").write("import os\\nos._exit(0)")
                except OSError:
                    pass
    """,
    "signals: to everyone, by every call that sends one": """
        import ctypes, os, signal
        libc = ctypes.CDLL(None)
        for pid in (0, -1, *range(1, 12)):
            if pid != os.getpid():
                for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGSTOP, signal.SIGKILL):
                    for send in (
                        lambda: os.kill(pid, number) if pid > 0 else None,
                        lambda: libc.syscall(234, pid, pid, number),  # tgkill
                        lambda: libc.syscall(129, pid, number, bytes(128)),  # rt_sigqueueinfo
                        lambda: signal.pidfd_send_signal(os.pidfd_open(pid), number),
                    ):
                        try:
                            send()
                        except OSError:
                            pass
    """,
    "signals: the kernel sends them for a pipe": """
        import fcntl, os
        for fd in range(3, 16):
            for pid in range(1, 8):
                try:
                    fcntl.fcntl(fd, fcntl.F_SETOWN, pid)
                    fcntl.fcntl(fd, fcntl.F_SETSIG, 9)
                    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
                except OSError:
                    pass
    """,
    "output: the whole talk of a pass, and nothing after it": """
        import os
        for fd in (1, 2):
            os.write(fd, b"ready\\nended 0 1\\n1 passed in 0.01s\\nOK\\n\\x04")
            os.close(fd)
    """,
    "exit codes: of the C library": "import ctypes\nctypes.CDLL(None).exit(0)",
    "exit codes: at once, in a child, in a grandchild": """
        import ctypes, os
        if os.fork():
            ctypes.CDLL(None)._exit(0)
        if os.fork():
            ctypes.CDLL(None).quick_exit(0)
    """,
    "exit codes: another interpreter that succeeds": """
        import os, sys
        for path in (sys.executable, sys._base_executable, "/usr/bin/true", "/usr/bin/env"):
            try:
                os.execv(path, [path, "-c", "raise SystemExit(0)"])
            except OSError:
                pass
    """,
    "answers: in every file and folder that can be read": """
        import glob, os, re
        for pattern in ("/sandbox/**", "/proc/*/*", "/dev/**", "/tmp/**", "/run/**", "/sys/*"):
            for path in glob.glob(pattern, recursive=True, include_hidden=True)[:2000]:
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                    match = re.search(rb"MARK_[0-9a-f]{16}", os.read(fd, 1 << 20))
                    found += [match[0].decode()] if match else []
                except OSError:
                    pass
    """,
    "answers: in every descriptor": """
        import os, re
        for fd in range(3, 128):
            for read in (lambda: os.pread(fd, 1 << 16, 0), lambda: os.read(fd, 1 << 16)):
                try:
                    os.set_blocking(fd, False)
                    match = re.search(rb"MARK_[0-9a-f]{16}", read())
                    found += [match[0].decode()] if match else []
                except OSError:
                    pass
    """,
    "answers: in the memory of other processes": """
        import ctypes, os
        libc = ctypes.CDLL(None)
        data = ctypes.create_string_buffer(1 << 16)
        for pid in range(1, 12):
            for path in (f"/proc/{pid}/mem", f"/proc/{pid}/task/{pid}/mem", f"/proc/{pid}/maps"):
                try:
                    found.append(open(path, "rb").read(1 << 16).decode("latin-1"))
                except OSError:
                    pass
            pieces = (ctypes.c_size_t * 4)(ctypes.addressof(data), 1 << 16, id(2), 1 << 16)
            here, there = ctypes.byref(pieces), ctypes.byref(pieces, 16)
            if pid != os.getpid() and libc.process_vm_readv(pid, here, 1, there, 1, 0) > 0:
                found.append(data.raw.decode("latin-1"))
    """,
}


def judged(backend: Backend, code: str, tests: str, limits: Limits = SHORT) -> SandboxResult:
    code, tests = textwrap.dedent(code), textwrap.dedent(tests)
    return run_python(code, tests=tests, limits=limits, backend=backend)


@pytest.mark.parametrize("trick", list(TRICKS))
def test_a_trick_is_not_a_pass(backend: Backend, trick: str) -> None:
    secret = f"MARK_{secrets.token_hex(8)}"
    code = "found = []\n" + textwrap.dedent(TRICKS[trick])
    code += "\ndef f(*arguments):\n    return found[-1] if found else 1\n"
    tests = f"import math\nexpected = {secret!r}\nassert f(math.floor(2.5)) == expected"
    result = judged(backend, code, tests)
    assert not result.ok, result
    assert secret not in result.stdout


#: Wrong solution, right one, and tests whose flow the wrong one tries to turn.
FLOWS = {
    "an end of iteration, taken for their own by `map` and `all`": (
        "def f(x): raise StopIteration",
        "def f(x): return 2 * x",
        "assert all(map(lambda case: f(case[0]) == case[1], [(1, 2), (3, 6)]))",
    ),
    "an end of iteration of another name, in a loop": (
        "class Fine(StopIteration): pass\ndef f(x): raise Fine",
        "def f(x): return 2 * x",
        "def check(x):\n    assert f(x) == 2 * x\nfor _ in map(check, [1, 2]): pass",
    ),
    "an end of iteration by a property": (
        "class f:\n    @property\n    def value(self): raise StopIteration",
        "class f:\n    value = 2",
        "assert all(map(lambda thing: thing.value == 2, [f()]))",
    ),
    "a block that hides errors": (
        """
        class f:
            value = 1
            def __enter__(self): return self
            def __exit__(self, *a): return True
        """,
        """
        class f:
            value = 2
            def __enter__(self): return self
            def __exit__(self, *a): return False
        """,
        "with f() as thing:\n    assert thing.value == 2",
    ),
    "a block made of a generator that hides errors": (
        """
        import contextlib
        @contextlib.contextmanager
        def f():
            with contextlib.suppress(BaseException):
                yield 1
        """,
        "import contextlib\n@contextlib.contextmanager\ndef f():\n    yield 2",
        "import contextlib\nwith contextlib.ExitStack() as stack:\n"
        "    assert stack.enter_context(f()) == 2",
    ),
    "a caller that hides what it is told": (
        "def f(callback):\n    try:\n        callback(1)\n    except BaseException:\n        pass",
        "def f(callback):\n    callback(2)",
        "def callback(x):\n    assert x == 2\nf(callback)",
    ),
    "a decorator that hides what it is told": (
        """
        def f(function):
            def quiet(*a):
                try: return function(1)
                except AssertionError: return None
            return quiet
        """,
        "def f(function): return function",
        "@f\ndef check(x):\n    assert x == 2\ncheck(2)",
    ),
    "a reader of a generator that hides how it ended": (
        """
        def f(numbers):
            try: return [next(numbers), numbers.send(1), next(numbers)]
            except BaseException: return []
        """,
        "def f(numbers): return [next(numbers), numbers.send(2)]",
        "def numbers():\n    assert (yield 1) == 2\n    yield 3\nf(numbers())",
    ),
    "an error that says the test is to be skipped": (
        "import unittest\ndef f(): raise unittest.SkipTest('later')",
        "def f(): return 2",
        """
        import unittest
        class Test(unittest.TestCase):
            def test(self):
                self.assertEqual(f(), 2)
        run = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(Test).run(run)
        assert run.testsRun == 1 and run.wasSuccessful()
        """,
    ),
    "an array that lies where the tests have their numbers": (
        """
        class f:
            @property
            def __array_interface__(self):
                place = id(2) + 24
                return {"data": (place, False), "shape": (1,), "typestr": "<i4", "version": 3}
        """,
        "import numpy\ndef f(): return numpy.array([2])",
        "import numpy\nassert numpy.asarray(f()).ravel()[0] == 2",
    ),
}


@pytest.mark.parametrize("flow", list(FLOWS))
def test_the_flow_of_the_tests_is_their_own(backend: Backend, flow: str) -> None:
    wrong, right, tests = FLOWS[flow]
    result = judged(backend, wrong, tests)
    assert not result.ok, result
    honest = judged(backend, right, tests, DEFAULT_LIMITS)
    assert honest.ok, honest


#: What is sent in place of an answer, by a solution that writes its own messages.
MESSAGES = {
    "an array of objects": '("array", "<i4", (1,), [Address()])',
    "an array of anything": '("array", "O", (1,), [Address()])',
    "an array of arrays": '("array", "(2,)i4", (1,), [2])',
    "the module of the tests": '("module", "tests")',
    "a module of the sandbox": '("module", "inside.judge")',
}


@pytest.mark.parametrize("message", list(MESSAGES))
def test_a_message_leads_to_no_memory_and_no_module(backend: Backend, message: str) -> None:
    code = f"""
    import sys
    class Address:
        @property
        def __array_interface__(self):
            place = id(2) + 24
            return {{"data": (place, False), "shape": (1,), "typestr": "<i4", "version": 3}}
    class Forged:
        pass
    library = sys.modules["inside.library"]
    describe = library.describe
    library.describe = lambda v: {MESSAGES[message]} if type(v) is Forged else describe(v)
    def f(change):
        try:
            change(Forged(), "expected", 1)
        except BaseException:
            pass
        return Forged()
    """
    reached = "answer = f(setattr)\nassert expected == 1 or type(answer) is not type(f)"
    result = judged(backend, code, f"expected = 2\n{reached}")
    assert not result.ok, result


def test_generators_and_blocks_of_honest_code_end_as_they_do(backend: Backend) -> None:
    code = """
    import contextlib
    def count():
        got = yield 1
        return got
    class Ignore:
        def __enter__(self): return self
        def __exit__(self, kind, error, trace): return kind is ValueError
    def fails(): assert False, "mine"
    @contextlib.contextmanager
    def forgives():
        with contextlib.suppress(AssertionError):
            yield
    def attempt(function):
        try:
            return function()
        except AssertionError:
            return "caught"
    """
    tests = """
    steps = count()
    assert next(steps) == 1
    try:
        steps.send(5)
        raise ValueError
    except StopIteration as end:
        assert end.value == 5
    steps = count()
    next(steps)
    try:
        steps.throw(KeyError("x"))
        raise ValueError
    except KeyError:
        pass
    assert list(count()) == [1] and list(map(next, [count()])) == [1]
    with Ignore():
        raise ValueError
    with forgives():
        fails()
    assert attempt(lambda: fails()) == "caught"
    """
    result = judged(backend, code, tests, DEFAULT_LIMITS)
    assert result.ok, result
