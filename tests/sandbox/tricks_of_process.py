"""Programs that turn the process against the tests: its end, threads, signals, descriptors."""

OF_PROCESS = {
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
                attempt(lambda: found.append(open(path, "rb").read(1 << 16).decode("latin-1")))
            pieces = (ctypes.c_size_t * 4)(ctypes.addressof(data), 1 << 16, id(2), 1 << 16)
            here, there = ctypes.byref(pieces), ctypes.byref(pieces, 16)
            if pid != os.getpid() and libc.process_vm_readv(pid, here, 1, there, 1, 0) > 0:
                found.append(data.raw.decode("latin-1"))
    """,
    "atexit: leave with success": "import atexit, os\natexit.register(os._exit, 0)",
    "atexit: finalizers and hooks that report a pass": """
        import atexit, os, sys, threading, weakref
        def report(*a):
            for fd in range(3, 64):
                attempt(lambda: os.write(fd, b"passed"))
            os._exit(0)
        class Last: __del__ = report
        keep = Last()
        weakref.finalize(keep, report)
        atexit.register(report)
        threading._register_atexit(report)
        sys.excepthook = sys.unraisablehook = threading.excepthook = report
    """,
    "descriptors: a verdict on each": """
        import os
        for fd in range(3, 128):
            for word in (b"passed", b"finished", b"ended 0 1\\n"):
                attempt(lambda: os.write(fd, word))
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
                attempt(lambda: os.write(fd, token))
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
            attempt(lambda: os.execv(path, [path, "-c", "raise SystemExit(0)"]))
    """,
    "exit status: SystemExit": "raise SystemExit(0)",
    "exit status: os._exit": "import os\nos._exit(0)",
    "exit status: sys.exit": "import sys\nsys.exit(0)",
    "exit status: a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "exit status: of the child": "import os\nos.fork() or os._exit(0)",
    "exit status: without the hook": """
        import sys
        sys.excepthook = lambda *a: None
        quit = exit = None
        sys.exit()
    """,
    "exit status: another program": "import os\nos.execv('/bin/true', ['true'])",
    "fork: go on as two": "import os\nos.fork()",
    "kill: end the reporter": """
        import os, signal, time
        if os.fork() == 0:
            time.sleep(0.05)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                for pid in range(1, 20):
                    if pid not in (os.getpid(), os.getppid()):
                        attempt(lambda: os.kill(pid, number))
            os._exit(0)
    """,
    "memory: write into the other processes": """
        import ctypes, os
        libc = ctypes.CDLL(None)
        for pid in range(1, 20):
            attempt(lambda: open(f"/proc/{pid}/mem", "r+b").write(b"passed"))
    """,
    "output: say that it passed": """
        import os, sys
        print("ended 0 1\\nready\\npassed", flush=True)
        print("ended 0 1\\npassed", file=sys.stderr, flush=True)
    """,
    "output: say that it passed, and leave": """
        import os
        print("ok passed True 0 1\\nended 0 1\\nready")
        os._exit(0)
    """,
    "output: the whole talk of a pass, and nothing after it": """
        import os
        for fd in (1, 2):
            os.write(fd, b"ready\\nended 0 1\\n1 passed in 0.01s\\nOK\\n\\x04")
            os.close(fd)
    """,
    "ptrace: take over the other processes": """
        import ctypes
        libc = ctypes.CDLL(None)
        for pid in range(1, 20):
            libc.ptrace(16, pid, None, None)
            libc.ptrace(0x4206, pid, None, None)
    """,
    "signals: a handler that leaves with success": """
        import os, signal
        for number in range(1, 32):
            attempt(lambda: signal.signal(number, lambda *a: os._exit(0)))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
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
                        attempt(send)
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
    "threads: leave with success in a moment": """
        import os, threading, time
        threading.Thread(target=lambda: (time.sleep(0.05), os._exit(0)), daemon=True).start()
    """,
    "threads: leave while the main one waits": """
        import os, threading, time
        threading.Timer(0, os._exit, [0]).start()
        time.sleep(5)
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
                    attempt(lambda: os.write(fd, struct.pack("<I", len(value)) + value))
        threading.Thread(target=lambda: [answer() for _ in range(1000)], daemon=True).start()
    """,
    "threads: the main one is interrupted": """
        import _thread, threading
        threading.Timer(0.02, _thread.interrupt_main).start()
    """,
}
