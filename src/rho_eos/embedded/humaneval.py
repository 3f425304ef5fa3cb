"""tiny-humaneval: a signature with a docstring and examples, to be completed by its body."""

import random
from typing import Any

from rho_eos.embedded.problem import Problem
from rho_eos.embedded.program import Call, CodeTask, Operation, body, numbered, shorter

SMALL = range(1, 10)
TIMES = range(2, 10)
OPERATIONS = (
    Operation(
        (
            "add {k}",
            "increase it by {k}",
        ),
        ("{x} = {x} + {k}",),
        lambda x, k: x + k,
        SMALL,
    ),
    Operation(
        (
            "subtract {k}",
            "decrease it by {k}",
            "take away {k}",
        ),
        ("{x} = {x} - {k}",),
        lambda x, k: x - k,
        SMALL,
    ),
    Operation(
        (
            "multiply by {k}",
            "multiply it by {k}",
        ),
        ("{x} = {x} * {k}",),
        lambda x, k: x * k,
        range(2, 5),
    ),
    Operation(
        (
            "if even, add {k}",
            "if it is even, add {k}",
            "when even, add {k}",
        ),
        ("if {x} % 2 == 0:", "    {x} = {x} + {k}"),
        lambda x, k: x + k if x % 2 == 0 else x,
        SMALL,
    ),
    Operation(
        (
            "if odd, subtract {k}",
            "if it is odd, subtract {k}",
            "when odd, take away {k}",
        ),
        ("if {x} % 2 == 1:", "    {x} = {x} - {k}"),
        lambda x, k: x - k if x % 2 == 1 else x,
        SMALL,
    ),
    Operation(
        (
            "if above {k}, halve",
            "if it is above {k}, halve it",
            "when greater than {k}, halve it",
        ),
        ("if {x} > {k}:", "    {x} = {x} // 2"),
        lambda x, k: x // 2 if x > k else x,
        range(10, 30),
    ),
    Operation(
        (
            "if below {k}, double",
            "if it is below {k}, double it",
            "when less than {k}, double it",
        ),
        ("if {x} < {k}:", "    {x} = {x} * 2"),
        lambda x, k: x * 2 if x < k else x,
        range(10, 30),
    ),
    Operation(
        (
            "{k} times, add 2",
            "add 2 and do so {k} times",
        ),
        ("for _ in range({k}):", "    {x} = {x} + 2"),
        lambda x, k: x + 2 * k,
        TIMES,
    ),
    Operation(
        (
            "{k} times, subtract 3",
            "subtract 3 and do so {k} times",
        ),
        ("for _ in range({k}):", "    {x} = {x} - 3"),
        lambda x, k: x - 3 * k,
        TIMES,
    ),
    Operation(
        (
            "make it positive",
            "if it is negative, flip its sign",
        ),
        ("if {x} < 0:", "    {x} = -{x}"),
        lambda x, _: abs(x),
    ),
)
FUNCTIONS = ("change", "convert", "compute", "process", "apply", "update", "run", "solve")
ARGUMENTS = ("x", "n", "a", "b", "m", "v")
INTROS = ("Do this to the number:", "Change the number like this:", "Steps:")


class TinyHumanEval(CodeTask):
    """Function bodies; see the module."""

    name = "tiny-humaneval"
    max_steps = 14
    operations = OPERATIONS

    def draw(self, rng: random.Random, steps: int) -> Problem:
        calls, meta = self.draw_calls(rng, steps)
        function, argument = rng.choice(FUNCTIONS), rng.choice(ARGUMENTS)
        prompt = _signature(rng, function, argument, calls)
        meta |= {"function": function, "before": f"{prompt}\n"}
        return Problem("", prompt, body(calls, argument), meta, shorter(calls, argument))

    def draw_input(self, rng: random.Random) -> int:
        return rng.randint(-9, 60)

    def tells_apart(self, values: list[Any]) -> bool:
        return all(abs(value) < 10_000 for value in values) and super().tells_apart(values)


def _signature(rng: random.Random, function: str, argument: str, calls: list[Call]) -> str:
    steps = numbered(rng, calls)
    examples = ""
    for value in rng.sample(range(1, 30), rng.randint(1, 2)):
        result = value
        for call in calls:
            result = call(result)
        examples += f"\n>>> {function}({value})\n{result}"
    docstring = (rng.choice(INTROS) + steps + examples).replace("\n", "\n    ")
    return f'def {function}({argument}):\n    """{docstring}\n    """'
