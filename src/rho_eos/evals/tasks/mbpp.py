"""MBPP: short functions described in a sentence; the test split is the items 11 to 510."""

from dataclasses import dataclass

from rho_eos.evals.registry import register_task
from rho_eos.evals.task import Sample
from rho_eos.evals.tasks.code_task import CodeTask
from rho_eos.evals.tasks.prompt import fill
from rho_eos.evals.tasks.source import Source

TEMPLATE = """$text Your code should pass these tests:

$tests

First, reason about the solution step-by-step. Then, write the code.
Respond in the following format:
<reasoning>
Your reasoning here
</reasoning>
<answer>
```python
The complete implementation of the function
```
</answer>"""


@register_task
@dataclass(frozen=True)
class Mbpp(CodeTask):
    template: str = TEMPLATE

    name = "mbpp"
    source = Source(
        fields={
            "task_id": int,
            "text": str,
            "code": str,
            "test_list": list,
            "test_setup_code": str,
        },
        sample_id=lambda _index, row: f"mbpp/{row['task_id']}",
        belongs=lambda row: 11 <= row["task_id"] <= 510,
        hub_name="google-research-datasets/mbpp",
        hub_config="full",
    )

    def prompt(self, sample: Sample) -> str:
        tests = "\n".join(sample.data["test_list"])
        return fill(self.template, text=sample.data["text"], tests=tests)

    def program(self, _sample: Sample, code: str) -> str:
        return code

    def tests(self, sample: Sample) -> str:
        return "\n".join([sample.data["test_setup_code"], *sample.data["test_list"]])

    def reference(self, sample: Sample) -> str:
        return str(sample.data["code"]).replace("\r\n", "\n")
