"""Programs that turn Python itself against the tests: names, modules, frames and objects."""

OF_INTERPRETER = {
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
    "errors: another class": "AssertionError = ValueError",
    "errors: one that leaves": "import builtins\nbuiltins.AssertionError = SystemExit",
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
    "gc: replace every function that judges": """
        import gc, types
        for thing in gc.get_objects():
            if isinstance(thing, types.FunctionType) and thing.__name__ in (
                "judge", "report", "show", "work", "with_tests", "_read_result", "__missing__"
            ):
                thing.__code__ = (lambda *a, **k: None).__code__
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
    "os: it reads, writes and ends nothing": """
        import os
        os._exit = os.read = os.write = lambda *a: None
    """,
    "reporter: other json, struct and os.write": """
        import json, os, struct
        struct.Struct = struct.pack = struct.unpack = json.dumps = lambda *a, **k: b"passed"
        real = os.write
        os.write = lambda fd, data: real(fd, b"passed")
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
    "syntax: an open text": "x = '''",
    "syntax: an open block": "if True:",
    "sys.modules: other modules for the reporter": """
        import sys, types
        for name in list(sys.modules):
            if name.startswith("inside") or name in ("os", "marshal", "select", "struct", "json"):
                sys.modules[name] = types.ModuleType(name)
    """,
    "sys.modules: none": "import sys\nsys.modules.clear()",
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
}
