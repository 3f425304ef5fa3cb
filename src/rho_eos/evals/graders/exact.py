"""The whole text is the answer, less the space around it."""

from typing import ClassVar

from rho_eos.evals.graders.grader import Comparison


class Exact(Comparison):
    name: ClassVar[str] = "exact"
    ignore_case: bool = False

    def extract(self, text: str) -> str | None:
        return text.strip() or None

    def expected(self, reference: str) -> str:
        return reference.strip()

    def equal(self, answer: str, expected: str) -> bool:
        if self.ignore_case:
            return answer.casefold() == expected.casefold()
        return answer == expected
