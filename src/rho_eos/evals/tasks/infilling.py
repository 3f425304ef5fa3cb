"""HumanEval-Infilling (Bavarian et al., 2022): a gap in a function, right if its tests pass.

The files of the benchmark, such as HumanEval-SingleLineInfilling.jsonl, are given with `--data`.
"""

from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.evals.graders.python_tests import grade_code
from rho_eos.evals.task import Grade, Sample, Task, register_task
from rho_eos.evals.tasks.source import Source


@register_task
class HumanEvalInfilling(Task):
    """Functions of HumanEval from which a line, some lines or a span were taken."""

    name = "humaneval-infilling"
    reads_file = True
    runs_code = True
    source = Source(
        fields=dict.fromkeys(
            ("task_id", "entry_point", "prompt", "suffix", "canonical_solution", "test"), str
        ),
        sample_id=lambda _index, row: str(row["task_id"]),
    )

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        if path is None:
            raise UserError(f"{self.name} reads a file of the benchmark: give it with --data")
        return self.source.load(path, limit)

    def ask(self, sample: Sample) -> dict[str, Any]:
        return {"prompt": sample.data["prompt"], "suffix": sample.data["suffix"]}

    def gold(self, sample: Sample) -> str:
        return str(sample.data["canonical_solution"])

    def grade(self, sample: Sample, text: str) -> Grade:
        data = sample.data
        program = f"{data['prompt']}{text}{data['suffix']}\n"
        return grade_code(text, program, f"{data['test']}\ncheck({data['entry_point']})\n")
