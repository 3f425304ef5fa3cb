"""The problems of the embedded models as benchmarks.

The problems are made, not loaded: the same seeds give the same problems on every machine. There is
no protocol around them: the prompt is the problem, nothing is pre-filled, the whole text is the
answer.
"""

from dataclasses import dataclass
from pathlib import Path

from rho_eos.base.errors import UserError
from rho_eos.embedded.problem import Problem
from rho_eos.embedded.tasks import held_out
from rho_eos.evals.graders import NumberAfter
from rho_eos.evals.registry import register_task
from rho_eos.evals.task import Grade, Sample, Task
from rho_eos.evals.tasks.code_task import CodeTask
from rho_eos.evals.tasks.prompt import fill

TEMPLATE = "$prompt"
TEST_SIZE = 500  # the generators never end; this many problems are "all of them"


@dataclass(frozen=True)
class Made(Task):
    """Problems that are made by their generator."""

    template: str = TEMPLATE

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        if path is not None:
            raise UserError(f"{self.name} makes its own problems and reads no file, but got {path}")
        if limit is not None and limit < 1:
            raise UserError(f"limit must be at least 1, got {limit}")
        return [sample_of(problem) for problem in held_out(self.name, limit or TEST_SIZE)]

    def prompt(self, sample: Sample) -> str:
        return fill(self.template, prompt=sample.data["prompt"])

    def gold(self, sample: Sample) -> str:
        return str(sample.data["answer"])


class TinyNumbers(Made):
    """Problems whose answer is the number after `####`."""

    def grade(self, sample: Sample, text: str) -> Grade:
        return NumberAfter().grade(text, self.gold(sample))


@register_task
class TinyGsm(TinyNumbers):
    name = "tiny-gsm"


@register_task
class TinyMath(TinyNumbers):
    name = "tiny-math"


@dataclass(frozen=True)
class TinyPrograms(Made, CodeTask):
    """Problems whose answer is a program: the text as it is, after what the prompt began."""

    template: str = TEMPLATE
    answer_prefix: str = ""
    reads_file = False

    def program(self, sample: Sample, code: str) -> str:
        return f"{sample.data['before']}{code}"

    def tests(self, sample: Sample) -> str:
        function, inputs, expected = (
            sample.data[key] for key in ("function", "inputs", "expected")
        )
        return f"assert [{function}(value) for value in {inputs!r}] == {expected!r}"

    def reference(self, sample: Sample) -> str:
        return self.gold(sample)

    def extract(self, text: str) -> str | None:
        return text.rstrip() or None

    def grade(self, sample: Sample, text: str) -> Grade:
        """A well-trained model mostly writes the reference itself, which need not be run again."""
        if text.rstrip() == self.reference(sample).rstrip():
            return Grade(correct=True, extracted=text.rstrip(), detail="the reference program")
        return super().grade(sample, text)


@register_task
class TinyMbpp(TinyPrograms):
    name = "tiny-mbpp"


@register_task
class TinyHumanEval(TinyPrograms):
    name = "tiny-humaneval"


def sample_of(problem: Problem) -> Sample:
    data = {"prompt": problem.prompt, "answer": problem.answer, **problem.meta}
    return Sample(problem.id, data)
