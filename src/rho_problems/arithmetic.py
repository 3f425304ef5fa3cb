"""tiny-math: an expression with brackets, reduced term by term to one number.

The expression stands on numbered lines, a term on each: a bracket such as (17 - 5), added or
subtracted. Each line of the answer reduces one bracket and carries the total on. All numbers stay
within 0 to 40.
"""

import random
from dataclasses import dataclass

from rho_problems.problem import Problem, Task

HEADS = range(1, 21)
ASKS = ("Reduce", "Compute", "What is", "Evaluate", "Simplify", "Calculate")


@dataclass(frozen=True, slots=True)
class Term:
    """A bracket with its value. `sign` joins it to the terms before it; the first one has none."""

    sign: str
    bracket: str
    value: int

    def __str__(self) -> str:
        return f"{self.sign} {self.bracket}".lstrip()


class TinyMath(Task):
    """Expressions; see the module."""

    name = "tiny-math"
    max_steps = 15

    def draw(self, rng: random.Random, steps: int) -> Problem:
        terms = _terms(rng, steps)
        lines = [f"{k}) {term}" for k, term in enumerate(terms, 1)]
        prompt = "\n".join([rng.choice(ASKS), *lines])
        if rng.random() < 0.15:
            prompt = prompt.replace("*", "×")
        full, brief, result = _reductions(terms)
        return Problem("", prompt, full, {"steps": steps}, (brief, result))


def _terms(rng: random.Random, steps: int) -> list[Term]:
    terms: list[Term] = []
    total = 0
    for _ in range(steps):
        bracket, value = _bracket(rng)
        signs = ["+"] * (total <= 31) + ["-"] * (total >= value)
        sign = rng.choice(signs) if terms else ""
        terms.append(Term(sign, bracket, value))
        total += -value if sign == "-" else value
    return terms


def _bracket(rng: random.Random) -> tuple[str, int]:
    """An operation with a result of 1 to 9."""
    head = rng.choice(HEADS)
    options = [("-", k, head - k) for k in range(max(1, head - 9), min(head, 13))]
    options += [("+", k, head + k) for k in range(1, 10) if head + k <= 9]
    products = [("*", k, head * k) for k in range(2, 8) if head * k <= 9]
    sign, operand, value = rng.choice(products if products and rng.random() < 0.5 else options)
    return f"({head} {sign} {operand})", value


def _reductions(terms: list[Term]) -> tuple[str, str, str]:
    """The answer in three lengths: in full, the equations of the total alone, only the result."""
    full = brief = ""
    total = 0
    for k, term in enumerate(terms, 1):
        before = total
        total += -term.value if term.sign == "-" else term.value
        bracket = f"{term} = {term.value}"
        equation = f"{before} {term.sign} {term.value} = {total}"
        full += f"{k}) {bracket}, so the total is {equation}\n" if k > 1 else f"1) {bracket}\n"
        brief += f"{equation}\n" if k > 1 else f"{term.bracket.strip('()')} = {term.value}\n"
    result = f"#### {total}"
    return full + result, brief + result, result
