"""What GSM8K and MATH500 share: the published protocol's prompt, and grading by `math-verify`."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rho_eos.evals.graders.extraction import math_answer
from rho_eos.evals.graders.math_verifier import verifier
from rho_eos.evals.task import ANSWER_PREFIX, Grade, Sample
from rho_eos.evals.tasks.prompt import fill, user_message
from rho_eos.evals.tasks.source import Source

WORD = re.compile(r"[A-Za-z]{2}")
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
class MathTask(ABC):
    """A benchmark whose answers are numbers or formulas."""

    template: str = TEMPLATE
    answer_prefix: str = ANSWER_PREFIX

    name: ClassVar[str]
    source: ClassVar[Source]

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

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        return user_message(fill(self.template, question=self.question(sample)))

    def extract(self, text: str) -> str | None:
        return math_answer(text)

    def grade(self, sample: Sample, text: str) -> Grade:
        answer = self.extract(text)
        if answer is None:
            return Grade(correct=False, extracted=None, detail="no complete answer in the text")
        reference = self.reference(sample)
        correct = equal(reference, answer)
        return Grade(correct, answer, f"{answer} {'=' if correct else '≠'} {reference}")

    def gold(self, sample: Sample) -> str:
        return (
            f"\n{self.solution(sample)}\n</reasoning>\n"
            f"<answer>\n{boxed(self.reference(sample))}\n</answer>"
        )


def equal(reference: str, answer: str) -> bool:
    """By `math-verify`, to which "18 dollars" is a formula in a box, and words outside of one."""
    if verifier.equal(boxed(reference), boxed(answer)):
        return True
    plain = answer.replace(r"\$", "")
    in_words = WORD.search(plain) is not None and "\\" not in plain
    return in_words and verifier.equal(boxed(reference), plain)


def boxed(answer: str) -> str:
    return rf"\boxed{{{answer}}}"
