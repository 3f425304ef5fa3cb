"""Run model-written Python so that it can neither harm this machine nor lie about its result.

Covered, by the backends `bubblewrap` and `namespaces`:

- no network: no interface but an unconfigured loopback, no way to the machine's own sockets, and
  no families of sockets but local and internet ones;
- no file but what the interpreter needs (itself, the standard library, installed packages, system
  libraries, and nothing else of the folder that it is installed in), read-only, and an empty work
  folder that lives in memory, is limited in size and number of files, and is gone afterwards;
- nothing of this process: not its environment, open files, memory, source, keys, or the power to
  signal it;
- limits on CPU time, memory and files per process, on the number of processes, the size of the
  work folder, the output and the wall time; whatever the code started is dead when `run_python`
  returns;
- where a control group can be made (`groups.py`), a limit on the memory of all processes and the
  work folder together;
- a filter on system calls, `inside/seccomp.py`: no keys, bpf, perf events, io_uring, userfaultfd,
  namespaces, mounts, tracing or memory of other processes, none of the memory that no limit counts
  (System V shared memory, message queues, memfd, extended attributes), no asynchronous input and
  output, and neither locks on files nor watching them; the host is called "sandbox";
- a verdict that does not depend on what the code can reach. The tests run in a process of their
  own (`inside/judge.py`), in an empty folder, with a home where no file can be, and with a fixed
  list of modules. They call functions of the code by name, and what comes back is read as plain
  values (`inside/plain.py`): None, bool, int, float, complex, str, bytes, list, tuple, set,
  frozenset and dict, of exactly these types, at most 100 containers in one another and 64 MiB.
  Anything else comes back as an opaque object that equals nothing, is neither true nor false, and
  can only be passed back. The code asks the tests nothing, and never sees them. What it does to
  its interpreter, its output, its exit status or its descriptors is its own affair;
- an assertion of the tests that failed stays failed, whatever catches or hides its error, and
  every error that leaves the tests is a failure.

What tests can do with the code: call its functions and classes with plain values, with those
functions, and with objects that came from it; and read its names. A value of a subclass comes back
as what it is a subclass of, a number of numpy as Python's own. An error is one of the same class
where that is one of Python's usual ones, else of its nearest base; an end of an iteration or of
the process is no more than an error. Arguments are copies: what the code does to them in place is
not seen. Methods, attributes, generators and coroutines are not served: a function of the code
has to return what they give, as a plain value.

Not covered:

- code that recognises its tests. It sees the arguments of each call, so it can hold a table of
  answers; where a test compares two answers of the code (`f(x) == g(x)`), both are the code's; and
  a helper that the tests neither define nor import is the code's;
- tests that catch errors of the code and go on (`except Exception: pass`): whether an error is
  right is theirs to say, and the code may raise one where it was asked for an answer;
- without tests, `ok` says that the last line was reached, and a program that looks for the pipe
  can claim that;
- holes in the kernel, and side channels such as timing;
- the total memory of all processes of one run where no control group can be made, as is usual
  without root: `processes` times `memory_bytes` at worst, plus the work folder and what pipes and
  sockets hold;
- signals to the process of the tests, on kernels with a Landlock older than version 6 (Linux
  6.12): the code can end it there, which is not a pass;
- the backend `unsafe`, which only has limits, a throw-away folder and tests in a process of their
  own that the code can attack, and is never chosen unasked.

`bubblewrap` is used where `bwrap` is installed and works. `namespaces` makes the same set-up with
the kernel's own calls and needs Landlock (Linux 5.13). Both need a kernel with seccomp filters on
x86_64 or aarch64, and work without privileges where the system allows user namespaces. Started by
root, they run the code as a user that nobody else is. Which one works is found out by trying it
(`probe_backend`), never by assumption.
"""

from rho_sandbox.backends import probe_backend, run_python, unavailable
from rho_sandbox.launch import Backend
from rho_sandbox.run import DEFAULT_LIMITS, Limits, NoSandboxError, SandboxError, SandboxResult

__all__ = [
    "DEFAULT_LIMITS",
    "Backend",
    "Limits",
    "NoSandboxError",
    "SandboxError",
    "SandboxResult",
    "probe_backend",
    "run_python",
    "unavailable",
]
