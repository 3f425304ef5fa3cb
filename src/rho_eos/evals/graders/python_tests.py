"""Code is right if it passes the sample's tests in the sandbox."""

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import PrivateAttr

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


class PythonTests(Grader):
    """`tests` and `before` are names of fields: the tests, and what stands before the code."""

    tests: str = "tests"
    before: str | None = None
    whole_text: bool = False  # the text is the code; else it is in a fence or in answer tags
    _backend: Backend | None = PrivateAttr(None)  # no option: a file must not switch it off

    name: ClassVar[str] = "python"
    runs_code: ClassVar[bool] = True

    def extract(self, text: str) -> str | None:
        if self.whole_text:
            return text.rstrip() or None
        return code_answer(text)

    def check(self, _reference: str, fields: Mapping[str, str]) -> None:
        for field in (self.tests, *([self.before] if self.before else [])):
            if field not in fields:
                raise UserError(f"no field {field!r}, which the grader python reads")
        if not fields[self.tests].strip():
            raise UserError(f"the field {self.tests!r} holds no tests")

    def grade(self, text: str, _reference: str, fields: Mapping[str, str] = NO_FIELDS) -> Grade:
        code = self.extract(text)
        before = fields[self.before] if self.before else ""
        separator = "\n" if before and not before.endswith("\n") else ""
        program = f"{before}{separator}{code}"
        return grade_code(code, program, fields[self.tests], backend=self._backend)

    def gold(self, reference: str) -> str:
        return reference if self.whole_text else f"```python\n{reference.rstrip()}\n```"

    def confined(self, backend: Backend) -> Self:
        copy = self.model_copy()
        copy._backend = backend
        return copy


def grade_code(
    code: str | None,
    program: str,
    tests: str,
    limits: Limits = DEFAULT_LIMITS,
    backend: Backend | None = None,
) -> Grade:
    """The verdict on `code`, which is in `program`; a backend of None is one that works."""
    if code is None:
        return Grade(correct=False, extracted=None, detail="no complete code in the text")
    try:
        result = run_python(program, tests=tests, limits=limits, backend=backend)
    except NoSandboxError as error:
        raise _refusal(error) from None
    return Grade(result.ok, code, describe(result))


def find_sandbox(unsafe: bool) -> Backend:
    """The sandbox that works on this machine; with `unsafe`, none at all where none works."""
    try:
        return probe_backend(unsafe)
    except NoSandboxError as error:
        raise _refusal(error) from None


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
