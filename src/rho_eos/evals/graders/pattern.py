"""The last match of a regular expression, or of its group, compared as text."""

import re
from typing import ClassVar

from pydantic import field_validator

from rho_eos.evals.graders.exact import Exact


class Pattern(Exact):
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
