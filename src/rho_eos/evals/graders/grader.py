"""What a grader is, and those that compare texts, numbers and mathematics."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from rho_eos.base.errors import UserError
from rho_eos.base.settings import Settings
from rho_eos.evals.graders.extraction import math_answer
from rho_eos.evals.graders.math_verifier import verifier
from rho_eos.evals.task import Grade

NO_FIELDS: Mapping[str, str] = MappingProxyType({})
# Not a part of something longer: 3/4, 2^5 and 12abc are not the numbers they begin with.
NUMBER = re.compile(r"\s*[$€£]?([-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+))(?!\.?[\w/^*])")
WORD = re.compile(r"[A-Za-z]{2}")
VALUE = re.compile(r"[\d\\]")
#: Between answers of which one is meant: math-verify would take the last.
OR = re.compile(r"\\text\{ *or *\}|\b(?:or|versus|vs)\b|\\lor\b|\\vee\b")
AND = re.compile(r"\band\b|&|\\land\b|\\wedge\b")
NOT = re.compile(r"\bnot\b|\\neg\b|\\lnot\b")
#: A reference of several values, or in such words: it may be met in the same way.
SEVERAL = re.compile(
    rf",(?!\d{{3}}\b)|;|\\[{{,;]|\\pm|\\cup|{OR.pattern}|{AND.pattern}|{NOT.pattern}"
)


class Grader(Settings):
    """Finds an answer in the text and compares it with the one in the reference.

    Its fields are its options. Graders may be used from several threads at once.
    """

    name: ClassVar[str]  # in task files
    absent: ClassVar[str] = "no answer in the text"  # what is said where nothing is found
    runs_code: ClassVar[bool] = False

    @abstractmethod
    def extract(self, text: str) -> str | None:
        """The answer in the text; None if there is none."""

    def expected(self, reference: str) -> str:
        """What the answer is compared with; `UserError` if the reference holds no such thing."""
        return reference.strip()

    def equal(self, answer: str, expected: str) -> bool:
        return answer == expected

    def check(self, reference: str, _fields: Mapping[str, str]) -> None:
        """Raise a `UserError` if no answer could be judged by this reference. It is called before
        any
        model is asked."""
        if not reference.strip():
            raise UserError("the reference is empty")
        self.expected(reference)

    def gold(self, reference: str) -> str:
        """The reference as a model would give it."""
        return reference

    def grade(self, text: str, reference: str, _fields: Mapping[str, str] = NO_FIELDS) -> Grade:
        """The verdict. Fields are the sample's, for a grader that needs more than a reference."""
        answer = self.extract(text)
        if answer is None:
            return Grade(correct=False, extracted=None, detail=self.absent)
        expected = self.expected(reference)
        correct = self.equal(answer, expected)
        return Grade(correct, answer, f"{answer} {'=' if correct else '≠'} {expected}")


class Exact(Grader):
    """The whole text is the answer, less the space around it."""

    name: ClassVar[str] = "exact"
    ignore_case: bool = False

    def extract(self, text: str) -> str | None:
        return text.strip() or None

    def equal(self, answer: str, expected: str) -> bool:
        if self.ignore_case:
            return answer.casefold() == expected.casefold()
        return answer == expected


class Pattern(Exact):
    """The answer is the last match of a regular expression, or of its group."""

    name: ClassVar[str] = "regex"
    pattern: str

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"a regular expression: {error}") from None
        if groups > 1:
            raise ValueError("a regular expression with at most one group; (?:…) is none")
        return pattern

    def extract(self, text: str) -> str | None:
        answer = None
        for found in re.finditer(self.pattern, text):
            answer = found[found.re.groups]
        return (answer or "").strip() or None


class NumberAfter(Grader):
    """The answer is the number after the last marker; numbers are compared by value."""

    name: ClassVar[str] = "number"
    absent: ClassVar[str] = "no number after the marker"
    marker: Annotated[str, Field(min_length=1)] = "####"

    def extract(self, text: str) -> str | None:
        _, found, tail = text.rpartition(self.marker)
        return number_at(tail) if found else None

    def expected(self, reference: str) -> str:
        """The number of a reference, which is that number or a whole solution with the marker."""
        number = self.extract(reference) or number_at(reference)
        if number is None:
            raise UserError(f"the reference {reference!r} holds no number")
        return number

    def equal(self, answer: str, expected: str) -> bool:
        return Decimal(answer.replace(",", "")) == Decimal(expected.replace(",", ""))

    def gold(self, reference: str) -> str:
        return reference if self.marker in reference else f"{self.marker} {reference}"


def number_at(text: str) -> str | None:
    """The number that a text begins with."""
    found = NUMBER.match(text)
    return found[1].rstrip(",") if found else None


class Mathematics(Grader):
    r"""The answer is in `<answer>` tags, in a `\boxed{}` or after `####`; `math-verify` decides."""

    name: ClassVar[str] = "math"
    absent: ClassVar[str] = "no complete answer in the text"

    def extract(self, text: str) -> str | None:
        return math_answer(text)

    def equal(self, answer: str, expected: str) -> bool:
        """Of several answers to choose from ("5 or 6") each has to be right."""
        if SEVERAL.search(expected):
            return self._same(answer, expected)
        if NOT.search(answer):
            return False
        answers = alternatives(answer)
        return all(self._same(each, expected) for each in answers) and bool(answers)

    def _same(self, answer: str, expected: str) -> bool:
        """Whether two results are equal. Words are also compared outside of a box: in a box
        math-verify reads "18 dollars" as a formula."""
        if verifier.equal(boxed(expected), boxed(answer)):
            return True
        plain = answer.replace(r"\$", "")
        in_words = WORD.search(plain) is not None and "\\" not in plain
        return in_words and verifier.equal(boxed(expected), plain)

    def gold(self, reference: str) -> str:
        return boxed(reference)


def alternatives(answer: str) -> list[str]:
    """The values between which an answer leaves the choice; most often it is one."""
    for joint in (OR, AND):
        pieces = [piece.strip(" ()$.,") for piece in joint.split(answer)]
        values = [piece for piece in pieces if piece and (VALUE.search(piece) or len(piece) == 1)]
        # "The sum of 6 and 12 is 18" joins words, and not answers.
        if len(values) > 1 and not (joint is AND and any(WORD.search(piece) for piece in values)):
            return values
    return [answer]


def boxed(answer: str) -> str:
    return rf"\boxed{{{answer}}}"
