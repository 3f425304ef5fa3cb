"""What MBPP and HumanEval share: code is right if it passes the sample's tests in the sandbox."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rho_eos.evals.graders.extraction import code_answer
from rho_eos.evals.sandbox import DEFAULT_LIMITS, Backend, Limits, SandboxResult, run_python
from rho_eos.evals.task import ANSWER_PREFIX, Grade, Sample
from rho_eos.evals.tasks.prompt import user_message
from rho_eos.evals.tasks.source import Source


@dataclass(frozen=True)
class CodeTask(ABC):
    """A benchmark whose answers are functions. `backend` is the sandbox; None: one that works."""

    template: str
    answer_prefix: str = ANSWER_PREFIX
    limits: Limits = DEFAULT_LIMITS
    backend: Backend | None = None

    name: ClassVar[str]
    source: ClassVar[Source]

    @abstractmethod
    def prompt(self, sample: Sample) -> str: ...

    @abstractmethod
    def program(self, sample: Sample, code: str) -> str:
        """The module that the tests are run on."""

    @abstractmethod
    def tests(self, sample: Sample) -> str: ...

    @abstractmethod
    def reference(self, sample: Sample) -> str:
        """The reference solution, as a whole function."""

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        return self.source.load(path, limit)

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        return user_message(self.prompt(sample))

    def extract(self, text: str) -> str | None:
        return code_answer(text)

    def grade(self, sample: Sample, text: str) -> Grade:
        code = self.extract(text)
        if code is None:
            return Grade(correct=False, extracted=None, detail="no complete code in the text")
        result = run_python(
            self.program(sample, code),
            tests=self.tests(sample),
            limits=self.limits,
            backend=self.backend,
        )
        return Grade(result.ok, code, describe(result))

    def gold(self, sample: Sample) -> str:
        code = self.reference(sample)
        return f"</reasoning>\n<answer>\n```python\n{code.rstrip()}\n```\n</answer>"


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
