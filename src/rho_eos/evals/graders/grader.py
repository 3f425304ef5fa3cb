"""What all graders have in common."""

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Self

from rho_eos.base.errors import UserError
from rho_eos.base.settings import Settings
from rho_eos.evals.task import Grade
from rho_sandbox import Backend

NO_FIELDS: Mapping[str, str] = MappingProxyType({})


class Grader(Settings):
    """Its fields are its options. Graders may be used from several threads at once."""

    name: ClassVar[str]  # in task files
    runs_code: ClassVar[bool] = False

    @abstractmethod
    def check(self, reference: str, fields: Mapping[str, str]) -> None:
        """`UserError` if no answer could be judged by this; asked before any model is."""

    @abstractmethod
    def grade(self, text: str, reference: str, fields: Mapping[str, str] = NO_FIELDS) -> Grade:
        """The verdict. Fields are the sample's, for a grader that needs more than a reference."""

    def gold(self, reference: str) -> str:
        """The reference as a model would give it."""
        return reference

    def confined(self, _backend: Backend) -> Self:
        """The same grader, whose code runs in this sandbox."""
        return self


class Comparison(Grader):
    """Finds an answer in the text and compares it with the one in the reference."""

    @property
    def absent(self) -> str:
        """What is said of a text in which nothing is found."""
        return "no answer in the text"

    @abstractmethod
    def extract(self, text: str) -> str | None:
        """The part of the text that is compared, None if there is none."""

    @abstractmethod
    def equal(self, answer: str, expected: str) -> bool: ...

    def expected(self, reference: str) -> str:
        """What the answer is compared with; `UserError` if the reference holds no such thing."""
        return reference

    def check(self, reference: str, _fields: Mapping[str, str]) -> None:
        if not reference.strip():
            raise UserError("the reference is empty")
        self.expected(reference)

    def grade(self, text: str, reference: str, _fields: Mapping[str, str] = NO_FIELDS) -> Grade:
        answer = self.extract(text)
        if answer is None:
            return Grade(correct=False, extracted=None, detail=self.absent)
        expected = self.expected(reference)
        correct = self.equal(answer, expected)
        return Grade(correct, answer, f"{answer} {'=' if correct else '≠'} {expected}")
