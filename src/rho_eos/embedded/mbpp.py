"""tiny-mbpp: a list of operations on a list of numbers, to be written as a Python function."""

import random
from typing import Any

from rho_eos.embedded.problem import Problem
from rho_eos.embedded.program import CodeTask, Operation, body, numbered, shorter

SMALL = range(1, 10)
FACTORS = range(2, 10)
OPERATIONS = (
    Operation(
        (
            "add {k} to each",
            "add {k} to every number",
            "increase each by {k}",
        ),
        ("xs = [x + {k} for x in xs]",),
        lambda xs, k: [x + k for x in xs],
        SMALL,
    ),
    Operation(
        (
            "take {k} from each",
            "subtract {k} from every number",
            "decrease each by {k}",
        ),
        ("xs = [x - {k} for x in xs]",),
        lambda xs, k: [x - k for x in xs],
        SMALL,
    ),
    Operation(
        (
            "multiply each by {k}",
            "multiply every number by {k}",
            "scale each by {k}",
        ),
        ("xs = [x * {k} for x in xs]",),
        lambda xs, k: [x * k for x in xs],
        FACTORS,
    ),
    Operation(
        (
            "take each mod {k}",
            "replace every number by its remainder mod {k}",
        ),
        ("xs = [x % {k} for x in xs]",),
        lambda xs, k: [x % k for x in xs],
        range(5, 10),
    ),
    Operation(
        (
            "keep those above {k}",
            "keep only numbers above {k}",
            "keep those greater than {k}",
        ),
        ("xs = [x for x in xs if x > {k}]",),
        lambda xs, k: [x for x in xs if x > k],
        SMALL,
    ),
    Operation(
        (
            "keep those below {k}",
            "keep only numbers below {k}",
            "keep those less than {k}",
        ),
        ("xs = [x for x in xs if x < {k}]",),
        lambda xs, k: [x for x in xs if x < k],
        SMALL,
    ),
    Operation(
        (
            "remove every {k}",
            "drop numbers equal to {k}",
        ),
        ("xs = [x for x in xs if x != {k}]",),
        lambda xs, k: [x for x in xs if x != k],
        SMALL,
    ),
    Operation(
        (
            "sort the list",
            "put them in order",
            "sort them",
        ),
        ("xs = sorted(xs)",),
        lambda xs, _: sorted(xs),
    ),
    Operation(
        (
            "reverse the list",
            "turn the list around",
            "reverse them",
        ),
        ("xs = xs[::-1]",),
        lambda xs, _: xs[::-1],
    ),
    Operation(
        (
            "append {k}",
            "put {k} at the end",
            "append a {k} at the end",
        ),
        ("xs = xs + [{k}]",),
        lambda xs, k: [*xs, k],
        SMALL,
    ),
    Operation(
        (
            "prepend {k}",
            "put {k} at the front",
            "put a {k} at the start",
        ),
        ("xs = [{k}] + xs",),
        lambda xs, k: [k, *xs],
        SMALL,
    ),
    Operation(
        (
            "drop the first number",
            "remove the first number",
        ),
        ("xs = xs[1:]",),
        lambda xs, _: xs[1:],
    ),
    Operation(
        (
            "drop the last number",
            "remove the last number",
        ),
        ("xs = xs[:-1]",),
        lambda xs, _: xs[:-1],
    ),
    Operation(
        (
            "square each",
            "square every number",
        ),
        ("xs = [x * x for x in xs]",),
        lambda xs, _: [x * x for x in xs],
    ),
    Operation(
        (
            "negate each",
            "flip the sign of every number",
        ),
        ("xs = [-x for x in xs]",),
        lambda xs, _: [-x for x in xs],
    ),
    Operation(
        (
            "remove duplicates",
            "keep each number once",
        ),
        ("xs = list(dict.fromkeys(xs))",),
        lambda xs, _: list(dict.fromkeys(xs)),
    ),
)
ASKS = (
    "Write a Python function f(xs) that does this to a list of numbers:",
    "Write a function f(xs) for a list of numbers:",
    "Write a Python function that takes a list xs:",
    "Python function, list of numbers xs:",
)
MAX_DIGITS = 12


class TinyMbpp(CodeTask):
    """List programs; see the module."""

    name = "tiny-mbpp"
    max_steps = 14
    operations = OPERATIONS

    def draw(self, rng: random.Random, steps: int) -> Problem:
        calls, meta = self.draw_calls(rng, steps)
        prompt = rng.choice(ASKS) + numbered(rng, calls)
        meta |= {"function": "f", "before": ""}
        full, *less = (f"def f(xs):\n{text}" for text in (body(calls, "xs"), *shorter(calls, "xs")))
        return Problem("", prompt, full, meta, tuple(less))

    def draw_input(self, rng: random.Random) -> list[int]:
        return [rng.randint(-9, 20) for _ in range(rng.randint(6, 10))]

    def tells_apart(self, values: list[Any]) -> bool:
        small = all(abs(x) < 10**MAX_DIGITS for xs in values for x in xs)
        long_enough = sum(len(xs) >= 3 for xs in values) * 2 >= len(values)
        return small and long_enough and super().tells_apart(values)
