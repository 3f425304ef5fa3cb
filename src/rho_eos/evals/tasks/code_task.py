"""MBPP and HumanEval: code is right if it passes the sample's tests in the sandbox."""

import re
from abc import abstractmethod
from dataclasses import dataclass

from rho_eos.evals.graders.extraction import code_answer
from rho_eos.evals.graders.python_tests import grade_code
from rho_eos.evals.task import Grade, Sample, register_task
from rho_eos.evals.tasks.source import Published, Source, fill
from rho_sandbox import DEFAULT_LIMITS, Limits

FORM = """

First, reason about the solution step-by-step. Then, write the code.
Respond in the following format:
<reasoning>
Your reasoning here
</reasoning>
<answer>
```python
The complete implementation of the %s
```
</answer>"""
MBPP = f"$text Your code should pass these tests:\n\n$tests{FORM % 'function'}"
HUMAN_EVAL = (
    "Write a solution to the following problem and make sure that it passes the tests:\n$prompt"
    + FORM % "$entry_point function"
)


@dataclass(frozen=True)
class CodeTask(Published):
    """A benchmark whose answers are functions."""

    limits: Limits = DEFAULT_LIMITS

    runs_code = True

    def program(self, _sample: Sample, code: str) -> str:
        """The module that the tests are run on."""
        return code

    @abstractmethod
    def tests(self, sample: Sample) -> str:
        """Python that fails with an exception where the program is wrong."""

    @abstractmethod
    def reference(self, sample: Sample) -> str:
        """The reference solution, as a whole function."""

    def grade(self, sample: Sample, text: str) -> Grade:
        code = code_answer(text)
        program = self.program(sample, code or "")
        return grade_code(code, program, self.tests(sample), self.limits)

    def gold(self, sample: Sample) -> str:
        code = self.reference(sample)
        return f"</reasoning>\n<answer>\n```python\n{code.rstrip()}\n```\n</answer>"


@register_task
@dataclass(frozen=True)
class Mbpp(CodeTask):
    """Short functions described in a sentence; the test split is the items 11 to 510."""

    template: str = MBPP

    name = "mbpp"
    source = Source(
        fields=dict.fromkeys(("text", "code", "test_setup_code"), str)
        | {"task_id": int, "test_list": list},
        sample_id=lambda _index, row: f"mbpp/{row['task_id']}",
        belongs=lambda row: 11 <= row["task_id"] <= 510,
        hub_name="google-research-datasets/mbpp",
        hub_config="full",
    )

    def prompt(self, sample: Sample) -> str:
        tests = "\n".join(sample.data["test_list"])
        return fill(self.template, text=sample.data["text"], tests=tests)

    def program(self, sample: Sample, code: str) -> str:
        """The set-up builds objects of the answer's own classes (mbpp/367), and so runs where these
        are. It holds no answers."""
        return f"{code}\n{sample.data['test_setup_code']}"

    def tests(self, sample: Sample) -> str:
        return "\n".join(sample.data["test_list"])

    def reference(self, sample: Sample) -> str:
        return str(sample.data["code"]).replace("\r\n", "\n")


@register_task
@dataclass(frozen=True)
class HumanEval(CodeTask):
    """Functions given by their signature and docstring."""

    template: str = HUMAN_EVAL

    name = "humaneval"
    source = Source(
        fields=dict.fromkeys(
            ("task_id", "prompt", "entry_point", "canonical_solution", "test"), str
        ),
        sample_id=lambda _index, row: str(row["task_id"]),
        hub_name="openai/openai_humaneval",
    )

    def prompt(self, sample: Sample) -> str:
        data = sample.data
        return fill(self.template, prompt=data["prompt"], entry_point=data["entry_point"])

    def program(self, sample: Sample, code: str) -> str:
        """The answer stands behind the prompt, which holds imports and helpers that it may use. It
        is the whole function, which replaces the one of the prompt, or only its body."""
        prompt = sample.data["prompt"]
        return f"{prompt}\n{code}\n" if _definition(sample, code) else f"{prompt}{code}\n"

    def tests(self, sample: Sample) -> str:
        """Some tests use imports and helpers of the prompt; they get these, not the answer's."""
        prompt = sample.data["prompt"]
        start = _definition(sample, prompt)
        before = prompt[: start.start()] if start else ""
        return f"{before}\n{sample.data['test']}\ncheck({sample.data['entry_point']})\n"

    def reference(self, sample: Sample) -> str:
        return f"{sample.data['prompt']}{sample.data['canonical_solution']}"


def _definition(sample: Sample, code: str) -> re.Match[str] | None:
    """Where the code defines the function that HumanEval asks for."""
    name = re.escape(sample.data["entry_point"])
    return re.search(rf"^(async )?def {name}\b", code, re.MULTILINE)
