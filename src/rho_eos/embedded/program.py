"""Code problems: operations in plain words, and their Python.

An operation is one numbered phrase of the prompt; the answer repeats it as a comment and adds a
line or two of Python: writing the program is translating operation by operation.
"""

import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rho_eos.embedded.problem import Task


@dataclass(frozen=True, slots=True)
class Operation:
    """What can be asked for. In the texts `{k}` is the operand and `{x}` the variable worked on."""

    phrases: tuple[str, ...]
    code: tuple[str, ...]
    apply: Callable[[Any, int], Any]
    operands: Sequence[int] = (0,)


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


def body(calls: Sequence[Call], x: str) -> str:
    """The function body: every call under its numbered comment, then the return."""
    lines: list[str] = []
    for number, call in enumerate(calls, 1):
        lines += [f"# {number}) {call.phrase}", *call.lines(x)]
    return _indented(lines, x)


def shorter(calls: Sequence[Call], x: str) -> tuple[str, ...]:
    """The function body without comments: of all calls, then of one less each time, to none."""
    each = [call.lines(x) for call in calls]
    return tuple(_indented(list(chain(*each[:kept])), x) for kept in range(len(each), -1, -1))


def _indented(lines: list[str], x: str) -> str:
    return "\n".join(f"    {line}" for line in (*lines, f"return {x}"))


class CodeTask(Task):
    """A task whose replies can be judged by running them on inputs.

    A problem's `meta` holds the `function` to call, its `inputs`, what is `expected` of them, and
    the part of the program that stands `before` the reply.
    """

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


def numbered(rng: random.Random, calls: Sequence[Call]) -> str:
    """The operations as a numbered list, on lines of their own or in one."""
    separator = " " if rng.random() < 0.25 else "\n"
    return "".join(f"{separator}{number}) {call.phrase}" for number, call in enumerate(calls, 1))
