"""What MBPP and HumanEval share: code is right if it passes the sample's tests in the sandbox."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from rho_eos.evals.graders.extraction import code_answer
from rho_eos.evals.graders.python_tests import grade_code
from rho_eos.evals.task import ANSWER_PREFIX, Grade, Sample, Task
from rho_eos.evals.tasks.source import Source
from rho_sandbox import DEFAULT_LIMITS, Backend, Limits


@dataclass(frozen=True)
class CodeTask(Task):
    """A benchmark whose answers are functions. `backend` is the sandbox; None: one that works."""

    template: str
    answer_prefix: str = ANSWER_PREFIX
    limits: Limits = DEFAULT_LIMITS
    backend: Backend | None = None

    source: ClassVar[Source]
    reads_file = True
    runs_code = True

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

    def extract(self, text: str) -> str | None:
        return code_answer(text)

    def grade(self, sample: Sample, text: str) -> Grade:
        code = self.extract(text)
        program = self.program(sample, code or "")
        return grade_code(code, program, self.tests(sample), self.limits, self.backend)

    def confined(self, backend: Backend) -> Self:
        return replace(self, backend=backend)

    def gold(self, sample: Sample) -> str:
        code = self.reference(sample)
        return f"</reasoning>\n<answer>\n```python\n{code.rstrip()}\n```\n</answer>"
