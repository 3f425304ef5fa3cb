"""The problems of the embedded models as benchmarks.

They are made, not loaded, and are the same on every machine. There is no protocol around them: the
prompt is the problem, nothing is pre-filled, and the whole text is the answer.
"""

from dataclasses import dataclass
from pathlib import Path

from rho_eos.base.errors import UserError
from rho_eos.evals.graders.grader import NumberAfter
from rho_eos.evals.graders.python_tests import grade_code
from rho_eos.evals.task import Grade, Sample, Task, register_task
from rho_problems import held_out
from rho_problems.problem import Problem

TEST_SIZE = 500  # the generators never end; this many problems are "all of them"


@dataclass(frozen=True)
class TinyNumbers(Task):
    """Problems whose answer is the number after `####`."""

    name: str

    def load(self, path: Path | None = None, limit: int | None = None) -> list[Sample]:
        if path is not None:
            raise UserError(f"{self.name} makes its own problems and reads no file, but got {path}")
        count = TEST_SIZE if limit is None else limit
        return [sample_of(problem) for problem in held_out(self.name, count)]

    def prompt(self, sample: Sample) -> str:
        return str(sample.data["prompt"])

    def gold(self, sample: Sample) -> str:
        return str(sample.data["answer"])

    def grade(self, sample: Sample, text: str) -> Grade:
        return NumberAfter().grade(text, self.gold(sample))


class TinyPrograms(TinyNumbers):
    """Problems whose answer is a program: the text as it is, after what the prompt began."""

    runs_code = True

    def grade(self, sample: Sample, text: str) -> Grade:
        code, data = text.rstrip(), sample.data
        if code == self.gold(sample).rstrip():  # as mostly, and it need not be run again
            return Grade(correct=True, extracted=code, detail="the reference program")
        function, inputs, expected = data["function"], data["inputs"], data["expected"]
        tests = f"assert [{function}(value) for value in {inputs!r}] == {expected!r}"
        return grade_code(code or None, f"{data['before']}{code}", tests)


for name, kind in {
    "tiny-gsm": TinyNumbers,
    "tiny-math": TinyNumbers,
    "tiny-mbpp": TinyPrograms,
    "tiny-humaneval": TinyPrograms,
}.items():
    register_task(kind(name))


def sample_of(problem: Problem) -> Sample:
    data = {"prompt": problem.prompt, "answer": problem.answer, **problem.meta}
    return Sample(problem.id, data)
