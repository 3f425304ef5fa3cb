"""tiny-math: an expression with brackets, reduced line by line to one number.

The expression is a chain of terms, each a bracket such as (17 - 5) or a number, added, subtracted
or (for a bracket around all that came before) multiplied. Each line of the answer reduces one term
and carries the total on. All numbers stay within 0 to 40, and the first numbers of the terms
differ, so that a line knows where in the expression it is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from rho_eos.tiny.problem import Problem, Task, final_number

HEADS = range(1, 21)
ASKS = (
    "Reduce {}",
    "Compute {}.",
    "What is {}?",
    "Evaluate {} step by step.",
    "Simplify {}",
    "Calculate {}",
    "{} = ?",
    "{}",
)


@dataclass(frozen=True, slots=True)
class Term:
    """`sign` joins it to what came before; `inner` is the operation inside its bracket, if any."""

    sign: str
    head: int
    inner: tuple[str, int] | None
    value: int


class TinyMath(Task):
    """Expressions; see the module."""

    name = "tiny-math"
    max_steps = 17

    def draw(self, rng: random.Random, steps: int) -> Problem:
        terms = _terms(rng, steps)
        expression = _expression(terms)
        if rng.random() < 0.3:
            expression = expression.replace(" ", "")
        if rng.random() < 0.15:
            expression = expression.replace("*", "×")
        prompt = rng.choice(ASKS).format(expression)
        return Problem("", prompt, _reduction(terms), {"steps": steps})

    def extract(self, text: str) -> str:
        return final_number(text)

    def grade(self, problem: Problem, text: str) -> bool:
        return self.extract(text) == self.extract(problem.answer)


def _terms(rng: random.Random, steps: int) -> list[Term]:
    heads = rng.sample(HEADS, len(HEADS))
    terms: list[Term] = []
    total = wraps = 0
    while len(terms) < steps:
        if terms and wraps < 2 and total <= 13 and rng.random() < 0.12:
            small = [head for head in heads if head in (2, 3)]
            if small:
                terms.append(Term("*", small[0], None, small[0]))
                heads.remove(small[0])
                total, wraps = total * small[0], wraps + 1
                continue
        head = heads[-1]
        bare = head <= 9 and steps > 1 and rng.random() < 0.15
        inner, value = (None, head) if bare else _bracket(rng, head)
        signs = ["+"] if not terms else ["+"] * (total <= 31) + ["-"] * (total >= value)
        sign = rng.choice(signs)
        terms.append(Term(sign, heads.pop(), inner, value))
        total += value if sign == "+" else -value
    return terms


def _bracket(rng: random.Random, head: int) -> tuple[tuple[str, int], int]:
    """An operation on `head` with a result of 1 to 9."""
    options = [("-", k, head - k) for k in range(max(1, head - 9), min(head, 13))]
    options += [("+", k, head + k) for k in range(1, 10) if head + k <= 9]
    products = [("*", k, head * k) for k in range(2, 8) if head * k <= 9]
    sign, operand, value = rng.choice(products if products and rng.random() < 0.5 else options)
    return (sign, operand), value


def _expression(terms: list[Term]) -> str:
    text = ""
    is_sum = False  # whether a factor after `text` needs a bracket around it
    for term in terms:
        inner = f"({term.head} {term.inner[0]} {term.inner[1]})" if term.inner else f"{term.head}"
        if not text:
            text = inner
        elif term.sign == "*":
            text = f"({text}) * {inner}" if is_sum else f"{text} * {inner}"
            is_sum = False
        else:
            text = f"{text} {term.sign} {inner}"
            is_sum = True
    return text


def _reduction(terms: list[Term]) -> str:
    lines = []
    total: int | None = None
    for k, term in enumerate(terms, 1):
        own = f"{term.head}"
        if term.inner:
            own = f"{term.head} {term.inner[0]} {term.inner[1]} = {term.value}"
        if total is None:
            total = term.value
            lines.append(f"{k}) {own}\n")
            continue
        before, total = total, _apply(total, term)
        lines.append(f"{k}) {own}, so the total is {before} {term.sign} {term.value} = {total}\n")
    return "".join(lines) + f"#### {total}"


def _apply(total: int, term: Term) -> int:
    if term.sign == "*":
        return total * term.value
    return total + term.value if term.sign == "+" else total - term.value


def facts() -> list[tuple[int, str, int, int]]:
    """Every equation that an answer to a word problem or an expression may contain."""
    found = {(a, "+", b, a + b) for a in range(41) for b in range(1, 10) if a + b <= 40}
    found |= {(a, "-", b, a - b) for a in range(41) for b in range(1, 10) if a >= b}
    found |= {(a, "-", b, a - b) for a in HEADS for b in range(1, 13) if 1 <= a - b <= 9}
    found |= {(a, "*", b, a * b) for a in range(14) for b in (2, 3)}
    found |= {(a, "*", b, a * b) for a in range(1, 10) for b in range(1, 10) if a * b <= 9}
    return sorted(found)
