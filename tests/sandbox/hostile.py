"""What hostile programs share."""

import textwrap

from rho_sandbox import Backend, Limits, SandboxResult, run_python

#: Stands before the code of an attack, in the same program.
TRYING = """
def attempt(harm):
    try:
        return harm()
    except (OSError, ValueError):
        return None
def must_fail(harm, *what):
    try:
        harm()
    except OSError:
        return
    print("ESCAPED", *what)
"""

SHORT = Limits(wall_seconds=10, cpu_seconds=2, memory_bytes=512 << 20)


def judged(backend: Backend, code: str, tests: str, limits: Limits = SHORT) -> SandboxResult:
    """A program under tests; both may stand indented, and the program can `attempt` harm."""
    code, tests = textwrap.dedent(code), textwrap.dedent(tests)
    return run_python(TRYING + code, tests=tests, limits=limits, backend=backend)
