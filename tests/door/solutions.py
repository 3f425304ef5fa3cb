"""Answers to problems of `tiny`, worked out from the words of a prompt: the model is not asked."""

import re

from rho_eos.evals import Grade
from rho_eos.evals.graders import NumberAfter

GAINS = {"gets", "buys", "finds", "wins", "picks", "earns", "collects", "receives", "makes", "adds"}
LOSSES = {"loses", "sells", "eats", "drops", "uses", "breaks", "gives", "throws"}
STEP = re.compile(r"[0-9]{1,2}\) ([a-z]+)(?: ([0-9]+))?")
TERM = re.compile(r"[0-9]{1,2}\) ([-+]?) ?\(([0-9]+) ([-+*×]) ([0-9]+)\)")


def number_asked_for(prompt: str) -> int:
    """The number that a story or a sum ends with; ValueError: it is neither."""
    if terms := TERM.findall(prompt):
        total = 0
        for sign, left, operation, right in terms:
            a, b = int(left), int(right)
            value = a + b if operation == "+" else a - b if operation == "-" else a * b
            total += -value if sign == "-" else value
        return total
    started = re.search(r"(?:has|with|are) ([0-9]+) ", prompt)
    steps = STEP.findall(prompt)
    if started is None or not steps or "How many" not in prompt:
        raise ValueError(f"{prompt!r} is neither a story nor a sum of the embedded model")
    value = int(started[1])
    for verb, operand in steps:
        if verb in ("doubles", "triples"):
            value *= 2 if verb == "doubles" else 3
        elif verb in GAINS:
            value += int(operand)
        elif verb in LOSSES:
            value -= int(operand)
        else:
            raise ValueError(f"{prompt!r}: {verb!r} is no event of the embedded model's stories")
    return value


def grade(prompt: str, text: str) -> Grade:
    return NumberAfter().grade(text, f"#### {number_asked_for(prompt)}")
