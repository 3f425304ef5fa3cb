"""The number after the last marker, such as `####`, compared by value."""

import re
from decimal import Decimal
from typing import Annotated, ClassVar

from pydantic import Field

from rho_eos.base.errors import UserError
from rho_eos.evals.graders.grader import Comparison

# Not a part of something longer: 3/4, 2^5 and 12abc are not the numbers they begin with.
NUMBER = re.compile(r"\s*[$€£]?([-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+))(?!\.?[\w/^*])")


class NumberAfter(Comparison):
    name: ClassVar[str] = "number"
    marker: Annotated[str, Field(min_length=1)] = "####"

    @property
    def absent(self) -> str:
        return f"no number after {self.marker}"

    def extract(self, text: str) -> str | None:
        _, found, tail = text.rpartition(self.marker)
        return number_at(tail) if found else None

    def expected(self, reference: str) -> str:
        """A reference is a number, or a whole solution with the marker in it."""
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
