"""HumanEval: functions given by their signature and docstring."""

import re
from dataclasses import dataclass

from rho_eos.evals.registry import register_task
from rho_eos.evals.task import Sample
from rho_eos.evals.tasks.code_task import CodeTask
from rho_eos.evals.tasks.prompt import fill
from rho_eos.evals.tasks.source import Source

TEMPLATE = """Write a solution to the following problem and make sure that it passes the tests:
$prompt

First, reason about the solution step-by-step. Then, write the code.
Respond in the following format:
<reasoning>
Your reasoning here
</reasoning>
<answer>
```python
The complete implementation of the $entry_point function
```
</answer>"""


@register_task
@dataclass(frozen=True)
class HumanEval(CodeTask):
    template: str = TEMPLATE

    name = "humaneval"
    source = Source(
        fields={
            "task_id": str,
            "prompt": str,
            "entry_point": str,
            "canonical_solution": str,
            "test": str,
        },
        sample_id=lambda _index, row: str(row["task_id"]),
        hub_name="openai/openai_humaneval",
    )

    def prompt(self, sample: Sample) -> str:
        data = sample.data
        return fill(self.template, prompt=data["prompt"], entry_point=data["entry_point"])

    def program(self, sample: Sample, code: str) -> str:
        """After the prompt, which holds imports and helpers the answer may count on.

        The answer is the whole function, which replaces the one of the prompt, or only its body.
        """
        prompt, entry_point = sample.data["prompt"], sample.data["entry_point"]
        whole = re.search(rf"^(async )?def {re.escape(entry_point)}\b", code, re.MULTILINE)
        return f"{prompt}\n{code}\n" if whole else f"{prompt}{code}\n"

    def tests(self, sample: Sample) -> str:
        """After the imports and helpers of the prompt, which some tests use: not the answer's."""
        prompt, entry_point = sample.data["prompt"], sample.data["entry_point"]
        start = re.search(rf"^(async )?def {re.escape(entry_point)}\b", prompt, re.MULTILINE)
        before = prompt[: start.start()] if start else ""
        return f"{before}\n{sample.data['test']}\ncheck({entry_point})\n"

    def reference(self, sample: Sample) -> str:
        return f"{sample.data['prompt']}{sample.data['canonical_solution']}"
