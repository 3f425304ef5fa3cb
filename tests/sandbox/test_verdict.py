"""Code that tries to give itself a pass, or to learn what its tests expect.

The solution is wrong each time: `f()` is 1 and the tests want 2.
"""

import textwrap
from dataclasses import replace

import pytest

from rho_eos.evals import Sample
from rho_eos.evals.graders.python_tests import running_in
from rho_eos.evals.tasks.code_task import HumanEval
from rho_sandbox import Backend, Limits, run_python

SHORT = Limits(wall_seconds=10, cpu_seconds=2, memory_bytes=512 << 20)

WRONG = "def f(*arguments):\n    return 1\n"

ON_LOADING = {
    "builtins: exec does nothing": "import builtins\nbuiltins.exec = lambda *a: None",
    "builtins: compile gives an empty program": """
        import builtins
        real = builtins.compile
        builtins.compile = lambda *a, **k: real("", "", "exec")
    """,
    "builtins: everything is equal": """
        import builtins, operator
        operator.eq = operator.__eq__ = lambda *a: True
        builtins.AssertionError = type("Quiet", (SystemExit,), {})
    """,
    "frames: replace the programs that are to run": """
        import sys
        frame = sys._getframe()
        while frame is not None:
            for value in list(frame.f_locals.values()):
                if isinstance(value, list):
                    value[:] = [compile("", "", "exec")] * len(value)
                if isinstance(value, dict) and "tests" in value:
                    value["tests"] = ""
            frame = frame.f_back
    """,
    "frames: replace the tests of the first frame": """
        import sys
        sys._getframe(1).f_locals["programs"][1] = compile("", "", "exec")
    """,
    "gc: replace every function that judges": """
        import gc, types
        for thing in gc.get_objects():
            if isinstance(thing, types.FunctionType) and thing.__name__ in (
                "judge", "report", "show", "work", "with_tests", "_read_result", "__missing__"
            ):
                thing.__code__ = (lambda *a, **k: None).__code__
    """,
    "atexit: leave with success": "import atexit, os\natexit.register(os._exit, 0)",
    "threads: leave with success in a moment": """
        import os, threading, time
        threading.Thread(target=lambda: (time.sleep(0.05), os._exit(0)), daemon=True).start()
    """,
    "sys.modules: other modules for the reporter": """
        import sys, types
        for name in list(sys.modules):
            if name.startswith("inside") or name in ("os", "marshal", "select", "struct", "json"):
                sys.modules[name] = types.ModuleType(name)
    """,
    "signals: a handler that leaves with success": """
        import os, signal
        for number in range(1, 32):
            try:
                signal.signal(number, lambda *a: os._exit(0))
            except (OSError, ValueError):
                pass
        signal.setitimer(signal.ITIMER_REAL, 0.05)
    """,
    "output: say that it passed": """
        import os, sys
        print("ended 0 1\\nready\\npassed", flush=True)
        print("ended 0 1\\npassed", file=sys.stderr, flush=True)
    """,
    "exit status: SystemExit": "raise SystemExit(0)",
    "exit status: os._exit": "import os\nos._exit(0)",
    "exit status: another program": "import os\nos.execv('/bin/true', ['true'])",
    "descriptors: a verdict on each": """
        import os
        for fd in range(3, 128):
            for word in (b"passed", b"finished", b"ended 0 1\\n"):
                try:
                    os.write(fd, word)
                except OSError:
                    pass
        os._exit(0)
    """,
    "descriptors: hand back whatever waits in them": """
        import os
        waiting = []
        for fd in range(3, 128):
            try:
                os.set_blocking(fd, False)
                waiting.append(os.read(fd, 64))
            except OSError:
                pass
        for fd in range(3, 128):
            for token in waiting:
                try:
                    os.write(fd, token)
                except OSError:
                    pass
        os._exit(0)
    """,
    "descriptors: fill the pipes with answers beforehand": """
        import os
        yes = b"=1"
        for fd in range(3, 128):
            try:
                os.set_blocking(fd, False)
                for _ in range(100):
                    os.write(fd, len(yes).to_bytes(4, "little") + yes)
            except OSError:
                pass
    """,
    "settrace: skip the assertions": """
        import sys
        def trace(frame, event, argument):
            if frame.f_code.co_filename == "<tests>":
                frame.f_lineno += 1
            return trace
        sys.settrace(trace)
        sys.setprofile(lambda *a: None)
        import threading
        threading.settrace(trace)
    """,
    "import hooks: other modules for the tests": """
        import sys, types
        class Finder:
            def find_spec(self, name, path=None, target=None):
                import os
                os._exit(0)
        sys.meta_path.insert(0, Finder())
        sys.path_hooks.insert(0, Finder)
        sys.path.insert(0, "/sandbox")
        open("/sandbox/math.py", "w").write("import os; os._exit(0)")
        open("/sandbox/sitecustomize.py", "w").write("import os; os._exit(0)")
    """,
    "reporter: other json, struct and os.write": """
        import json, os, struct
        struct.Struct = struct.pack = struct.unpack = json.dumps = lambda *a, **k: b"passed"
        real = os.write
        os.write = lambda fd, data: real(fd, b"passed")
    """,
    "ptrace: take over the other processes": """
        import ctypes
        libc = ctypes.CDLL(None)
        for pid in range(1, 20):
            libc.ptrace(16, pid, None, None)
            libc.ptrace(0x4206, pid, None, None)
    """,
    "memory: write into the other processes": """
        import ctypes, os
        libc = ctypes.CDLL(None)
        for pid in range(1, 20):
            try:
                open(f"/proc/{pid}/mem", "r+b").write(b"passed")
            except OSError:
                pass
    """,
    "kill: end the reporter": """
        import os, signal, time
        if os.fork() == 0:
            time.sleep(0.05)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                for pid in range(1, 20):
                    if pid not in (os.getpid(), os.getppid()):
                        try:
                            os.kill(pid, number)
                        except OSError:
                            pass
            os._exit(0)
    """,
    "fork: go on as two": "import os\nos.fork()",
    "names: bring other builtins": """
        abs = round = float = int = len = set = sorted = str = lambda *a, **k: 2
        print = exec = eval = isinstance = lambda *a, **k: True
    """,
    "names: a file for every name of the tests": """
        def __getattr__(name):
            return 2
        class Everything(dict):
            def __missing__(self, name):
                return 2
        import sys
        sys.modules[__name__].__dict__.update({"__builtins__": Everything(), "__missing__": 2})
    """,
}


#: The second of the two stays until the time is over; it has had its say long before.
LIMITS = {"fork: go on as two": replace(SHORT, wall_seconds=4)}


@pytest.mark.parametrize("trick", list(ON_LOADING))
@pytest.mark.parametrize("moment", ["on loading", "when called"])
def test_a_trick_is_not_a_pass(backend: Backend, trick: str, moment: str) -> None:
    code = textwrap.dedent(ON_LOADING[trick]).strip()
    if moment == "on loading":
        program = f"{WRONG}{code}\n"
    else:
        program = f"def f(*arguments):\n{textwrap.indent(code, '    ')}\n    return 1\n"
    tests = "import math\nassert math.floor(2.5) == 2\nassert f() == 2\nassert abs(f() - 2) < 0.1"
    result = run_python(program, tests=tests, limits=LIMITS.get(trick, SHORT), backend=backend)
    assert not result.ok, result


ANSWERS = {
    "everything is equal to it": "__eq__ = lambda self, other: True\n__hash__ = lambda self: 0",
    "nothing is unequal to it": "__ne__ = lambda self, other: False\n__eq__ = lambda *a: True",
    "everything is near it": """
        __sub__ = __rsub__ = __add__ = __radd__ = __mod__ = lambda self, other: 0
        __abs__ = lambda self: 0
        __lt__ = __le__ = __gt__ = __ge__ = __eq__ = lambda self, other: True
    """,
    "it contains everything": """
        __contains__ = __eq__ = lambda self, other: True
        __iter__ = lambda self: iter(())
    """,
    "it claims another class": """
        __class__ = int
        __eq__ = lambda self, other: True
        __instancecheck__ = lambda self, other: True
    """,
}
BASES = ["object", "int", "str", "list", "dict", "tuple", "float", "set"]
QUESTIONS = [
    "assert f() == 2",
    "assert 2 == f()",
    "assert not f() != 2",
    "assert f() in [2, 3]",
    "assert [f()] == [2]",
    "assert {'a': f()} == {'a': 2}",
    "assert abs(f() - 2) < 1e-6",
    "assert f() >= 2 and f() <= 2",
    "assert 2 in f()",
    "assert type(f()) is int and f() == 2",
    "assert isinstance(f(), int) and f() == 2",
    "import math\nassert math.isclose(f(), 2)",
    "import unittest\nunittest.TestCase().assertEqual(f(), 2)",
]


@pytest.mark.parametrize("answer", list(ANSWERS))
def test_an_answer_does_not_decide_whether_it_is_right(backend: Backend, answer: str) -> None:
    body = textwrap.indent(textwrap.dedent(ANSWERS[answer]).strip(), "    ")
    classes = "".join(f"class A{base}({base}):\n{body}\n" for base in BASES)
    cases = "".join(f"    A{base},\n" for base in BASES)
    program = f"{classes}cases = [\n{cases}]\nkind = None\n"
    program += "def choose(n):\n    global kind\n    kind = cases[n]\ndef f():\n    return kind()\n"
    attempts = [f"def q{n}():\n" + textwrap.indent(q, "    ") for n, q in enumerate(QUESTIONS)]
    tests = "\n".join(attempts) + textwrap.dedent(f"""
        for base in range({len(BASES)}):
            choose(base)
            for question in [{", ".join(f"q{n}" for n in range(len(QUESTIONS)))}]:
                try:
                    question()
                except (AssertionError, TypeError, ValueError):
                    continue
                print("PASSED", base, question.__name__)
        """)
    result = run_python(program, tests=tests, limits=SHORT, backend=backend)
    assert result.ok and result.stdout == "", result


def test_expected_values_are_nowhere_in_the_memory_of_the_code(backend: Backend) -> None:
    """It reads its raw memory, page by page. Backwards, so as not to find what it looks for."""
    code = """
    import ctypes, os
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    def scan():
        page, found = 4096, 0
        reader, writer = os.pipe()
        for middle in (id(object()), libc.sbrk(0)):
            for step in range(-2048, 2048):
                address = (middle & ~(page - 1)) + step * page
                try:
                    os.write(writer, (ctypes.c_char * page).from_address(address))
                except OSError:
                    continue
                found += b"STSET_EHT_FO_REKRAM" in os.read(reader, page)[::-1]
        return found
    """
    code, marker = textwrap.dedent(code), "'MARKER_OF_THE_TESTS'"
    hidden = run_python(code, tests=f"expected = {marker}\nassert scan() == 0", backend=backend)
    assert hidden.ok, hidden
    seen = run_python(f"{code}\nx = {marker}", tests="assert scan() > 0", backend=backend)
    assert seen.ok, "the search does not find what is there"


def test_what_the_tests_hand_over_does_not_lead_to_them(backend: Backend) -> None:
    code = """
    def reach(function, thing, generator):
        names = ["__globals__", "__code__", "__class__", "__dict__", "gi_frame", "__closure__"]
        reached = []
        for target in (function, thing, generator, thing.method):
            for name in names:
                try:
                    value = getattr(target, name)
                except (AttributeError, PermissionError):
                    continue
                if "Remote" not in str(value) and "mappingproxy" not in str(value):
                    reached.append(name)
        peer = function._peer
        for operation, arguments in {
            "getattr": ("text", "format"),
            "call": (print, "x"),
            "name": ("secret",),
            "dir": (thing,),
            "setattr": (type(thing), "x", 1),
            "len": ("text",),
        }.items():
            try:
                reached.append((operation, peer.request(operation, *arguments)))
            except (PermissionError, KeyError, TypeError):
                pass
        return reached, function(20), thing.method(), next(generator)
    """
    tests = """
    secret = 3
    class Thing:
        def method(self):
            return 5
    assert reach(lambda x: x + secret, Thing(), (n for n in [7])) == ([], 23, 5, 7), reach(
        lambda x: x + secret, Thing(), (n for n in [7]))
    """
    result = run_python(textwrap.dedent(code), tests=textwrap.dedent(tests), backend=backend)
    assert result.ok, result


@pytest.mark.parametrize(
    "message",
    [
        "b''",
        "b'=' * 40",
        "b'=i' + b'\\xff' * 8",
        "b'=x(\\x02\\0\\0\\0sz'",
        "b'#N'",
        "b'=['",
        "b'=E1'",
    ],
)
def test_what_is_no_message_ends_the_tests_without_a_pass(backend: Backend, message: str) -> None:
    """Also where a test catches everything."""
    code = f"""
    import os
    def f():
        message = {message}
        for fd in range(3, 64):
            try:
                os.write(fd, len(message).to_bytes(4, "little") + message)
            except OSError:
                pass
        return 2
    """
    tests = "try:\n    f()\nexcept BaseException:\n    pass\n"
    result = run_python(textwrap.dedent(code), tests=tests, limits=SHORT, backend=backend)
    assert not result.ok, result


def test_helpers_of_a_humaneval_prompt_are_not_the_answers_to_replace(backend: Backend) -> None:
    """The tests of HumanEval/32 check a root with the prompt's `poly` and `math`."""
    prompt = textwrap.dedent('''
        import math
        def poly(xs, x):
            """Evaluate."""
            return sum(c * math.pow(x, i) for i, c in enumerate(xs))
        def find_zero(xs):
            """Find x such that poly(x) = 0."""
        ''')
    test = "def check(candidate):\n    assert math.fabs(poly([1, 2], candidate([1, 2]))) < 1e-4\n"
    data = {"task_id": "x", "prompt": prompt, "entry_point": "find_zero", "test": test}
    task = HumanEval()
    sample = Sample("x", {**data, "canonical_solution": "    return -xs[0] / xs[1]\n"})
    with running_in(backend):
        assert task.grade(sample, task.gold(sample)).correct
    cheat = "class math:\n    fabs = abs\ndef poly(*a): return 0\ndef find_zero(xs): return 7\n"
    with running_in(backend):
        assert not task.grade(sample, f"<answer>\n```python\n{cheat}```\n</answer>").correct
