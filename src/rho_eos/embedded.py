"""The embedded model's tasks as benchmarks: held-out problems, asked the way it was trained.

The problems are made, not loaded: the same seeds give the same problems on every machine. There is
no protocol around them: the prompt is the problem, nothing is pre-filled, the whole text is the
answer.
"""

from abc import ABC
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rho_eos.errors import UserError
from rho_eos.evals.task import Grade, Sample
from rho_eos.evals.tasks.code_task import CodeTask
from rho_eos.evals.tasks.prompt import fill, user_message
from rho_eos.tiny.problem import final_number

TEMPLATE = "$prompt"
TEST_SIZE = 500  # the generators never end; this many problems are "all of them"


@dataclass(frozen=True)
class TinyNumbers(ABC):
    """Problems whose answer is the number after `####`."""

    template: str = TEMPLATE
    answer_prefix: str = ""

    name: ClassVar[str]

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        return held_out_samples(self.name, path, limit)

    def messages(self, sample: Sample) -> list[dict[str, str]]:
        return user_message(fill(self.template, prompt=sample.data["prompt"]))

    def extract(self, text: str) -> str | None:
        return final_number(text) or None

    def grade(self, sample: Sample, text: str) -> Grade:
        number, right = self.extract(text), self.extract(self.gold(sample))
        if number is None:
            return Grade(correct=False, extracted=None, detail="no number after ####")
        correct = number == right
        return Grade(correct, number, f"{number} {'=' if correct else '≠'} {right}")

    def gold(self, sample: Sample) -> str:
        return str(sample.data["answer"])


class TinyGsm(TinyNumbers):
    name = "tiny-gsm"


class TinyMath(TinyNumbers):
    name = "tiny-math"


@dataclass(frozen=True)
class TinyPrograms(CodeTask):
    """Problems whose answer is a program: the text as it is, after what the prompt began."""

    template: str = TEMPLATE
    answer_prefix: str = ""

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        return held_out_samples(self.name, path, limit)

    def prompt(self, sample: Sample) -> str:
        return fill(self.template, prompt=sample.data["prompt"])

    def program(self, sample: Sample, code: str) -> str:
        return f"{sample.data['before']}{code}"

    def tests(self, sample: Sample) -> str:
        function, inputs, expected = (
            sample.data[key] for key in ("function", "inputs", "expected")
        )
        return f"assert [{function}(value) for value in {inputs!r}] == {expected!r}"

    def reference(self, sample: Sample) -> str:
        return str(sample.data["answer"])

    def extract(self, text: str) -> str | None:
        return text.rstrip() or None

    def grade(self, sample: Sample, text: str) -> Grade:
        """A well-trained model mostly writes the reference itself, which need not be run again."""
        if text.rstrip() == self.reference(sample).rstrip():
            return Grade(correct=True, extracted=text.rstrip(), detail="the reference program")
        return super().grade(sample, text)

    def gold(self, sample: Sample) -> str:
        return self.reference(sample)


class TinyMbpp(TinyPrograms):
    name = "tiny-mbpp"


class TinyHumanEval(TinyPrograms):
    name = "tiny-humaneval"


def held_out_samples(task: str, path: Path | None, limit: int | None) -> list[Sample]:
    from rho_eos.tiny.tasks import held_out  # its graders use this package's sandbox

    if path is not None:
        raise UserError(f"{task} makes its own problems and reads no file, but got {path}")
    if limit is not None and limit < 1:
        raise UserError(f"limit must be at least 1, got {limit}")
    return [
        Sample(problem.id, {"prompt": problem.prompt, "answer": problem.answer, **problem.meta})
        for problem in held_out(task, TEST_SIZE if limit is None else limit)
    ]
