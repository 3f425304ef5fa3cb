"""Code is right if it passes the sample's tests in the sandbox."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from rho_eos.base.errors import UserError
from rho_eos.evals.graders.extraction import code_answer
from rho_eos.evals.graders.grader import NO_FIELDS, Grader
from rho_eos.evals.task import Grade
from rho_sandbox import (
    DEFAULT_LIMITS,
    Backend,
    Limits,
    NoSandboxError,
    SandboxResult,
    probe_backend,
    run_python,
)

#: What `running_in` has chosen for this process. None: a sandbox that works, or a refusal.
_chosen: Backend | None = None


class PythonTests(Grader):
    """`tests` and `before` are names of fields: the tests, and what stands before the code."""

    tests: str = "tests"
    before: str | None = None
    whole_text: bool = False  # the text is the code; else it is in a fence or in answer tags

    name: ClassVar[str] = "python"
    runs_code: ClassVar[bool] = True

    def check(self, _reference: str, fields: Mapping[str, str]) -> None:
        for field in (self.tests, *([self.before] if self.before else [])):
            if field not in fields:
                raise UserError(f"no field {field!r}, which the grader python reads")
        if not fields[self.tests].strip():
            raise UserError(f"the field {self.tests!r} holds no tests")

    def extract(self, text: str) -> str | None:
        return text.rstrip() or None if self.whole_text else code_answer(text)

    def grade(self, text: str, _reference: str, fields: Mapping[str, str] = NO_FIELDS) -> Grade:
        code = self.extract(text)
        before = fields[self.before] if self.before else ""
        separator = "\n" if before and not before.endswith("\n") else ""
        return grade_code(code, f"{before}{separator}{code}", fields[self.tests])

    def gold(self, reference: str) -> str:
        return reference if self.whole_text else f"```python\n{reference.rstrip()}\n```"


def grade_code(
    code: str | None, program: str, tests: str, limits: Limits = DEFAULT_LIMITS
) -> Grade:
    """The verdict on an answer that is code.

    Args:
        code: The answer; None if the text holds no complete one.
        program: The module that holds the code, and that the tests are run on.
        tests: Python that fails with an exception where the program is wrong.
        limits: What the program may use of time and memory.
    """
    if code is None:
        return Grade(correct=False, extracted=None, detail="no complete code in the text")
    try:
        result = run_python(program, tests=tests, limits=limits, backend=_chosen)
    except NoSandboxError as error:
        raise _refusal(error) from None
    return Grade(result.ok, code, describe(result))


def find_sandbox(unsafe: bool) -> Backend:
    """The sandbox that works on this machine; with `unsafe`, none at all where none works."""
    try:
        return probe_backend(unsafe)
    except NoSandboxError as error:
        raise _refusal(error) from None


@contextmanager
def running_in(backend: Backend | None) -> Iterator[None]:
    """All code that is graded within this context, by whichever thread, runs in this sandbox."""
    global _chosen
    before, _chosen = _chosen, backend
    try:
        yield
    finally:
        _chosen = before


def _refusal(error: NoSandboxError) -> UserError:
    return UserError(f"{error}, or pass --unsafe-code to run the code without confinement")


def describe(result: SandboxResult) -> str:
    """One line that says how the tests went."""
    if result.ok:
        return "all tests passed"
    if result.killed_by is not None:
        return f"stopped by {result.killed_by}"
    lines = result.stderr.strip().splitlines()
    if not lines:
        return f"ended with status {result.exit_code} before its tests did"
    in_test = len(lines) > 1 and lines[-1].startswith("in test: ")
    return f"{lines[-2]} {lines[-1]}" if in_test else lines[-1]
