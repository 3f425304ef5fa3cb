"""Run model-written Python so that it can neither harm this machine nor lie about its result.

Covered, by the backends `bubblewrap` and `namespaces`:

- no network: no interface but an unconfigured loopback, no way to the machine's own sockets, and
  no families of sockets but local and internet ones;
- no file but the interpreter's own (standard library, installed packages, system libraries),
  read-only, and an empty work folder that lives in memory, is limited in size and number of files,
  and is gone afterwards;
- nothing of this process: not its environment, open files, memory, source, keys, or the power to
  signal it;
- limits on CPU time, memory and files per process, on the number of processes, the size of the
  work folder, the output and the wall time; whatever the code started is dead when `run_python`
  returns;
- where a control group can be made (`groups.py`), a limit on the memory of all processes and the
  work folder together;
- a filter on system calls, `inside/seccomp.py`: no keys, bpf, perf events, io_uring, userfaultfd,
  namespaces, mounts, tracing or memory of other processes, and none of the memory that no limit
  counts, which is System V shared memory, message queues, memfd and extended attributes;
- a verdict that does not depend on what the code can reach. The tests run in a process of their
  own (`inside/judge.py`). The code is asked to call its functions and sends back values; the
  tests, which it never sees, compare them and report on a pipe that it never had. What it does to
  its interpreter, its output, its exit status or its descriptors is its own affair, and an object
  of its own class is neither equal to a plain value nor can one be calculated with. It does not
  steer the tests either: an assertion of theirs that failed stays failed, whoever caught it (a
  block or a caller of the code), no call ends an iteration of theirs, and nothing that it sends
  is taken for an address in their memory.

What tests may do with the code, and what is different from one process: plain values, containers
and some types of the standard library and numpy are copied, and arguments that were changed in
place are changed; functions, classes, objects, iterators, coroutines and errors work from afar.
An object is compared and calculated with only if the other one is an object of the code, too; a
class of the code cannot be inherited from; output and input of the code cannot be redirected; a
name that the tests assign is not seen by the code; `StopIteration` comes out of `next`, `send` and
`throw` only, and is a `RuntimeError` from any other call.

Not covered:

- code that recognises its tests. It sees the arguments of each call, so it can hold a table of
  answers; where a test asks the answer itself (`f(x).startswith(…)`, `f(x) == g(x)`), the code
  answers; and a helper that the tests neither define nor import is the code's;
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
