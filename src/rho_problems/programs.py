"""Code problems: tiny-mbpp (functions of a list) and tiny-humaneval (bodies for a signature).

A prompt asks for numbered operations in plain words. The answer repeats each as a comment and adds
a line or two of Python, so writing the program is translating operation by operation. What can be
asked for is listed in `operations.toml`.
"""

import random
import tomllib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from rho_problems.problem import Problem, Task

FUNCTIONS = ("change", "convert", "compute", "process", "apply", "update", "run", "solve")
ARGUMENTS = ("x", "n", "a", "b", "m", "v")
INTROS = ("Do this to the number:", "Change the number like this:", "Steps:")
ASKS = (
    "Write a Python function f(xs) that does this to a list of numbers:",
    "Write a function f(xs) for a list of numbers:",
    "Write a Python function that takes a list xs:",
    "Python function, list of numbers xs:",
)
_OPERATIONS = tomllib.loads(Path(__file__).with_name("operations.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Operation:
    """What can be asked for: its phrases, its code, and the same code as a function."""

    phrases: tuple[str, ...]
    code: tuple[str, ...]
    operands: Sequence[int]
    apply: Callable[[Any, int], Any]


def operations_of(task: str, variable: str) -> tuple[Operation, ...]:
    """The operations of a task, whose code works on a variable of this name."""
    found = []
    for entry in _OPERATIONS[task]:
        steps = _indented([line.format(k="k", x=variable) for line in entry["code"]], variable)
        namespace: dict[str, Any] = {}
        exec(f"def apply({variable}, k):\n{steps}", namespace)
        operands = range(*entry.get("operands", (0, 1)))
        phrases, code = tuple(entry["phrases"]), tuple(entry["code"])
        found.append(Operation(phrases, code, operands, namespace["apply"]))
    return tuple(found)


def _indented(lines: list[str], x: str) -> str:
    return "\n".join(f"    {line}" for line in (*lines, f"return {x}"))


@dataclass(frozen=True, slots=True)
class Call:
    """An operation with its operand, in the words of the prompt."""

    operation: Operation
    k: int
    phrase: str

    def lines(self, x: str) -> list[str]:
        return [line.format(k=self.k, x=x) for line in self.operation.code]

    def __call__(self, value: Any) -> Any:
        return self.operation.apply(value, self.k)


class CodeTask(Task):
    """A task whose replies can be judged by running them on inputs.

    A problem's `meta` holds the `function` to call, its `inputs`, what is `expected` of them, and
    the part of the program that stands `before` the reply.
    """

    max_steps = 14
    operations: Sequence[Operation]
    inputs_per_problem = 8

    @abstractmethod
    def draw_input(self, rng: random.Random) -> Any:
        """One argument to try a program on."""

    def draw_calls(self, rng: random.Random, steps: int) -> tuple[list[Call], dict[str, Any]]:
        """Calls that leave the inputs distinguishable to the end, with what they make of them."""
        inputs = [self.draw_input(rng) for _ in range(self.inputs_per_problem)]
        values = inputs
        calls: list[Call] = []
        while len(calls) < steps:
            operation = rng.choice(self.operations)
            k = rng.choice(operation.operands)
            call = Call(operation, k, rng.choice(operation.phrases).format(k=k))
            after = [call(value) for value in values]
            if self.tells_apart(after):
                calls.append(call)
                values = after
        return calls, {"steps": steps, "inputs": inputs, "expected": values}

    def tells_apart(self, values: list[Any]) -> bool:
        """Whether these intermediate results still let a later mistake show."""
        return len({repr(value) for value in values}) >= len(values) // 2


class TinyMbpp(CodeTask):
    """A list of operations on a list of numbers, to be written as a Python function."""

    name = "tiny-mbpp"
    operations = operations_of(name, "xs")

    def draw(self, rng: random.Random, steps: int) -> Problem:
        calls, meta = self.draw_calls(rng, steps)
        prompt = rng.choice(ASKS) + _numbered(rng, calls)
        meta |= {"function": "f", "before": ""}
        full, *less = (f"def f(xs):\n{body}" for body in _bodies(calls, "xs"))
        return Problem("", prompt, full, meta, tuple(less))

    def draw_input(self, rng: random.Random) -> list[int]:
        return [rng.randint(-9, 20) for _ in range(rng.randint(6, 10))]

    def tells_apart(self, values: list[Any]) -> bool:
        small = all(abs(x) < 10**12 for xs in values for x in xs)
        long_enough = sum(len(xs) >= 3 for xs in values) * 2 >= len(values)
        return small and long_enough and super().tells_apart(values)


class TinyHumanEval(CodeTask):
    """A signature with a docstring and examples, to be completed by its body."""

    name = "tiny-humaneval"
    operations = operations_of(name, "x")

    def draw(self, rng: random.Random, steps: int) -> Problem:
        calls, meta = self.draw_calls(rng, steps)
        function, argument = rng.choice(FUNCTIONS), rng.choice(ARGUMENTS)
        prompt = _signature(rng, function, argument, calls)
        meta |= {"function": function, "before": f"{prompt}\n"}
        full, *less = _bodies(calls, argument)
        return Problem("", prompt, full, meta, tuple(less))

    def draw_input(self, rng: random.Random) -> int:
        return rng.randint(-9, 60)

    def tells_apart(self, values: list[Any]) -> bool:
        return all(abs(value) < 10_000 for value in values) and super().tells_apart(values)


def _bodies(calls: Sequence[Call], x: str) -> list[str]:
    """Function bodies: with every call under its numbered comment; then without comments, of all
    calls, of one less each time, and of none."""
    each = [call.lines(x) for call in calls]
    commented = [
        [f"# {number}) {call.phrase}", *lines]
        for number, (call, lines) in enumerate(zip(calls, each, strict=True), 1)
    ]
    shorter = [each[:kept] for kept in range(len(each), -1, -1)]
    return [_indented(list(chain(*part)), x) for part in (commented, *shorter)]


def _numbered(rng: random.Random, calls: Sequence[Call]) -> str:
    """The operations as a numbered list, on lines of their own or in one."""
    separator = " " if rng.random() < 0.25 else "\n"
    return "".join(f"{separator}{number}) {call.phrase}" for number, call in enumerate(calls, 1))


def _signature(rng: random.Random, function: str, argument: str, calls: list[Call]) -> str:
    steps = _numbered(rng, calls)
    examples = ""
    for value in rng.sample(range(1, 30), rng.randint(1, 2)):
        result = value
        for call in calls:
            result = call(result)
        examples += f"\n>>> {function}({value})\n{result}"
    docstring = (rng.choice(INTROS) + steps + examples).replace("\n", "\n    ")
    return f'def {function}({argument}):\n    """{docstring}\n    """'
