"""What GSM8K and MATH500 share: the published protocol's prompt, and grading by `math-verify`."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rho_eos.evals.graders.mathematics import Mathematics, boxed
from rho_eos.evals.task import ANSWER_PREFIX, Grade, Sample, Task
from rho_eos.evals.tasks.prompt import fill
from rho_eos.evals.tasks.source import Source

TEMPLATE = r"""You are a math expert. You will be given a question to solve. Solve it step by step.
Wrap the final answer in a \boxed{}.
Respond in the following format:
<reasoning>
Your reasoning here
</reasoning>
<answer>
\boxed{...}
</answer>

$question

"""


@dataclass(frozen=True)
class MathTask(Task):
    """A benchmark whose answers are numbers or formulas."""

    template: str = TEMPLATE
    answer_prefix: str = ANSWER_PREFIX

    source: ClassVar[Source]
    reads_file = True

    @abstractmethod
    def question(self, sample: Sample) -> str: ...

    @abstractmethod
    def reference(self, sample: Sample) -> str:
        """The right result, in LaTeX."""

    @abstractmethod
    def solution(self, sample: Sample) -> str:
        """The reference reasoning."""

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        return self.source.load(path, limit)

    def prompt(self, sample: Sample) -> str:
        return fill(self.template, question=self.question(sample))

    def grade(self, sample: Sample, text: str) -> Grade:
        return Mathematics().grade(text, self.reference(sample))

    def gold(self, sample: Sample) -> str:
        return (
            f"\n{self.solution(sample)}\n</reasoning>\n"
            f"<answer>\n{boxed(self.reference(sample))}\n</answer>"
        )
