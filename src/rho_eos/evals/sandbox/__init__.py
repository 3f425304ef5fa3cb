"""Run model-written Python so that it can neither harm this machine nor lie about its result.

Covered, by the backends `bubblewrap` and `namespaces`:

- no network: no interface but an unconfigured loopback, and no way to the machine's own sockets;
- no file but the interpreter's own (standard library, installed packages, system libraries),
  read-only, and an empty work folder of limited size that lives in memory and is gone afterwards;
- nothing of this process: not its environment, open files, memory, source, or the power to signal
  it;
- limits on CPU time, memory and files per process, on the number of processes, the size of the
  work folder, the output and the wall time; whatever the code started is dead when `run_python`
  returns;
- a verdict the code cannot give itself by ending early (`os._exit(0)`, `sys.exit`, a signal), by
  printing, or by reading its source, arguments, environment or files. `child.py` says how.

Not covered:

- code written against this grader. It shares an interpreter with its tests, as in the published
  benchmarks: it can return objects that claim to be equal to everything, read the expected values
  off the call stack, or look for the token among the open file descriptors;
- holes in the kernel, and side channels such as timing;
- the total memory of all processes of one run, which is `processes` times `memory_bytes` at
  worst;
- the backend `unsafe`, which only has limits and a throw-away folder, and is never chosen
  unasked.

`bubblewrap` is used where `bwrap` is installed and works. `namespaces` makes the same set-up with
the kernel's own calls and needs Landlock (Linux 5.13). Both work without privileges where the
system allows user namespaces. Started by root, they run the code as a user that nobody else is.
Which one works is found out by trying it (`probe_backend`), never by assumption.
"""

from rho_eos.evals.sandbox.backends import probe_backend, run_python, unavailable
from rho_eos.evals.sandbox.launch import Backend
from rho_eos.evals.sandbox.run import DEFAULT_LIMITS, Limits, SandboxError, SandboxResult

__all__ = [
    "DEFAULT_LIMITS",
    "Backend",
    "Limits",
    "SandboxError",
    "SandboxResult",
    "probe_backend",
    "run_python",
    "unavailable",
]
