r"""A number or formula in `<answer>` tags, in a `\boxed{}` or after `####`, by `math-verify`."""

import re
from typing import ClassVar

from rho_eos.evals.graders.extraction import math_answer
from rho_eos.evals.graders.grader import Comparison
from rho_eos.evals.graders.math_verifier import verifier

WORD = re.compile(r"[A-Za-z]{2}")


class Mathematics(Comparison):
    name: ClassVar[str] = "math"

    @property
    def absent(self) -> str:
        return "no complete answer in the text"

    def extract(self, text: str) -> str | None:
        return math_answer(text)

    def equal(self, answer: str, expected: str) -> bool:
        """To math-verify "18 dollars" is a formula in a box, and words outside of one."""
        if verifier.equal(boxed(expected), boxed(answer)):
            return True
        plain = answer.replace(r"\$", "")
        in_words = WORD.search(plain) is not None and "\\" not in plain
        return in_words and verifier.equal(boxed(expected), plain)

    def gold(self, reference: str) -> str:
        return boxed(reference)


def boxed(answer: str) -> str:
    return rf"\boxed{{{answer}}}"
