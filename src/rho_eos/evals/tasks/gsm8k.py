"""GSM8K: word problems of primary-school mathematics whose answers are numbers."""

import re

from rho_eos.evals.graders.extraction import after_hashes
from rho_eos.evals.registry import register_task
from rho_eos.evals.task import Sample
from rho_eos.evals.tasks.math_task import MathTask
from rho_eos.evals.tasks.source import Source

CALCULATION = re.compile(r"<<[^>]*>>")  # the data set's notes for a calculator, such as <<2+3=5>>


@register_task
class Gsm8k(MathTask):
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
