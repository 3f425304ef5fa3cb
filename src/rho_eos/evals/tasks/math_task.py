"""GSM8K and MATH500: the published protocol's prompt, and grading by `math-verify`."""

import re
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from rho_eos.evals.graders.extraction import unboxed
from rho_eos.evals.graders.grader import Mathematics, boxed
from rho_eos.evals.task import Grade, Sample, register_task
from rho_eos.evals.tasks.source import Published, Source, fill

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
CALCULATION = re.compile(r"<<[^>]*>>")  # GSM8K's notes for a calculator, such as <<2+3=5>>


@dataclass(frozen=True)
class MathTask(Published):
    """A benchmark whose answers are numbers or formulas."""

    template: str = TEMPLATE
    question: ClassVar[str]  # the field that holds it

    @abstractmethod
    def solved(self, sample: Sample) -> tuple[str, str]:
        """The reference reasoning, and the right result in LaTeX."""

    def prompt(self, sample: Sample) -> str:
        return fill(self.template, question=sample.data[self.question])

    def grade(self, sample: Sample, text: str) -> Grade:
        return Mathematics().grade(text, self.solved(sample)[1])

    def gold(self, sample: Sample) -> str:
        reasoning, result = self.solved(sample)
        return f"\n{reasoning}\n</reasoning>\n<answer>\n{boxed(result)}\n</answer>"


@register_task
class Gsm8k(MathTask):
    """Word problems of primary-school mathematics whose answers are numbers."""

    name = "gsm8k"
    question = "question"
    source = Source(
        fields={"question": str, "answer": str},
        sample_id=lambda index, _row: f"gsm8k/{index}",
        hub_name="openai/gsm8k",
        hub_config="main",
    )

    def solved(self, sample: Sample) -> tuple[str, str]:
        reasoning, _, result = sample.data["answer"].rpartition("####")
        return CALCULATION.sub("", reasoning.rstrip()), result.strip()


@register_task
class Math500(MathTask):
    """Competition problems whose answers are numbers, formulas, sets or words, in LaTeX."""

    name = "math500"
    question = "problem"
    source = Source(
        fields={"problem": str, "solution": str, "answer": str, "unique_id": str},
        sample_id=lambda _index, row: f"math500/{row['unique_id']}",
        hub_name="HuggingFaceH4/MATH-500",
    )

    def solved(self, sample: Sample) -> tuple[str, str]:
        # A box in the reasoning would be an answer before the answer.
        return unboxed(sample.data["solution"]), sample.data["answer"]
