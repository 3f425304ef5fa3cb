"""GSM8K and MATH500: the published protocol's prompt, and grading by `math-verify`."""

import re
from abc import abstractmethod
from dataclasses import dataclass

from rho_eos.evals.graders.extraction import after_hashes, unboxed
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

    @abstractmethod
    def question(self, sample: Sample) -> str: ...

    @abstractmethod
    def reference(self, sample: Sample) -> str:
        """The right result, in LaTeX."""

    @abstractmethod
    def solution(self, sample: Sample) -> str:
        """The reference reasoning."""

    def prompt(self, sample: Sample) -> str:
        return fill(self.template, question=self.question(sample))

    def grade(self, sample: Sample, text: str) -> Grade:
        return Mathematics().grade(text, self.reference(sample))

    def gold(self, sample: Sample) -> str:
        result = boxed(self.reference(sample))
        return f"\n{self.solution(sample)}\n</reasoning>\n<answer>\n{result}\n</answer>"


@register_task
class Gsm8k(MathTask):
    """Word problems of primary-school mathematics whose answers are numbers."""

    name = "gsm8k"
    source = Source(
        fields={"question": str, "answer": str},
        sample_id=lambda index, _row: f"gsm8k/{index}",
        hub_name="openai/gsm8k",
        hub_config="main",
    )

    def question(self, sample: Sample) -> str:
        return str(sample.data["question"])

    def reference(self, sample: Sample) -> str:
        return (after_hashes(sample.data["answer"]) or "").strip()

    def solution(self, sample: Sample) -> str:
        return CALCULATION.sub("", sample.data["answer"].rpartition("####")[0].rstrip())


@register_task
class Math500(MathTask):
    """Competition problems whose answers are numbers, formulas, sets or words, in LaTeX."""

    name = "math500"
    source = Source(
        fields={"problem": str, "solution": str, "answer": str, "unique_id": str},
        sample_id=lambda _index, row: f"math500/{row['unique_id']}",
        hub_name="HuggingFaceH4/MATH-500",
    )

    def question(self, sample: Sample) -> str:
        return str(sample.data["problem"])

    def reference(self, sample: Sample) -> str:
        return str(sample.data["answer"])

    def solution(self, sample: Sample) -> str:
        return unboxed(sample.data["solution"])  # or it would be an answer before the answer
