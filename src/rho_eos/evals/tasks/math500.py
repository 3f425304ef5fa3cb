"""MATH500: competition problems whose answers are numbers, formulas, sets or words, in LaTeX."""

from rho_eos.evals.graders.extraction import unboxed
from rho_eos.evals.registry import register_task
from rho_eos.evals.task import Sample
from rho_eos.evals.tasks.math_task import MathTask
from rho_eos.evals.tasks.source import Source


@register_task
class Math500(MathTask):
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
        """Without the published box, so that reasoning alone is no answer yet."""
        return unboxed(sample.data["solution"])
