"""tiny-gsm: word problems of 1 to 12 steps, answered step by step.

One number (0 to 40) is carried through a story; each numbered event adds, takes away or multiplies.
The answer repeats the number and the verb of an event, which is how it finds it in the story, and
never a name or a thing, so words the model has never seen there do no harm.
"""

import random
from dataclasses import dataclass

from rho_problems.problem import Problem, Task


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words(
    "Ada Alan Amir Anna Ben Bella Carl Clara Dan Daisy Ella Emil Eva Finn Grace Hana Henry Ivan "
    "Jack Jane Karl Kim Lena Leo Lily Luis Maria Max Mia Nina Noah Olga Omar Paul Rosa Sam Sara "
    "Tom Yuki Zoe"
)
THINGS = _words(
    "apples balls beads books boxes cakes candles cards chairs coins cookies cups eggs flowers "
    "hats keys lamps lemons marbles nuts oranges pears pencils pens plants plums rings shells "
    "stamps stickers stones tickets toys"
)
GAINS = ("gets", "buys", "finds", "wins", "picks", "earns", "collects", "receives", "makes", "adds")
LOSSES = ("loses", "sells", "eats", "drops", "uses", "breaks", "gives", "throws")
TIMES = {2: "doubles", 3: "triples"}
BRIEF = ("Be brief.", "Answer briefly.", "Short answer please.")
FULL = ("Explain each step.", "Think step by step.", "Show each step.")


class TinyGsm(Task):
    """Word problems; see the module."""

    name = "tiny-gsm"
    max_steps = 12

    def draw(self, rng: random.Random, steps: int) -> Problem:
        start = rng.randint(2, 20)
        moves = _moves(rng, start, steps)
        brief = rng.randrange(4) == 0
        answer = _answer(start, moves, brief)
        prompt = _story(rng, start, moves, brief)
        meta = {"steps": steps, "brief": brief}
        return Problem("", prompt, answer, meta, (_equations(start, moves), _result(moves)))


@dataclass(frozen=True, slots=True)
class Move:
    """An event: its verb, what it does to the number, and the number afterwards."""

    verb: str
    sign: str
    operand: int
    after: int

    @property
    def event(self) -> str:
        return self.verb if self.sign == "*" else f"{self.verb} {self.operand}"

    def equation(self, before: int) -> str:
        return f"{before} {self.sign} {self.operand} = {self.after}"


def _moves(rng: random.Random, value: int, steps: int) -> list[Move]:
    moves = []
    for _ in range(steps):
        choices = ["+"] * (value <= 31) * 4 + ["-"] * (value >= 9) * 4 + ["*"] * (value <= 13)
        sign = rng.choice(choices)
        operand = rng.randint(2, 3) if sign == "*" else rng.randint(1, 9)
        verb = TIMES[operand] if sign == "*" else rng.choice(GAINS if sign == "+" else LOSSES)
        value = {"+": value + operand, "-": value - operand, "*": value * operand}[sign]
        moves.append(Move(verb, sign, operand, value))
    return moves


def _answer(value: int, moves: list[Move], brief: bool) -> str:
    lines = [] if brief else [f"Start with {value}.\n"]
    for k, move in enumerate(moves, 1):
        explanation = {
            "+": f"add {move.operand} to it",
            "-": f"take {move.operand} from it",
            "*": f"multiply it by {move.operand}",
        }[move.sign]
        middle = "" if brief else f", so now we have {value} and {explanation}"
        lines.append(f"{k}) {move.event}{middle}: {move.equation(value)}\n")
        value = move.after
    return "".join(lines) + _result(moves)


def _equations(value: int, moves: list[Move]) -> str:
    before = [value, *(move.after for move in moves)]
    lines = [f"{move.equation(value)}\n" for move, value in zip(moves, before, strict=False)]
    return "".join(lines) + _result(moves)


def _result(moves: list[Move]) -> str:
    return f"#### {moves[-1].after}"


def _story(rng: random.Random, start: int, moves: list[Move], brief: bool) -> str:
    name = _made_up_name(rng) if rng.random() < 0.13 else rng.choice(NAMES)
    things = rng.choice(THINGS)
    opening = rng.choice(
        (
            f"{name} has {start} {things}.",
            f"{name} starts with {start} {things}.",
            f"At first {name} has {start} {things}.",
            f"There are {start} {things} in the box of {name}.",
        )
    )
    opening += rng.choice(("", f" Then {name}:", " Then:", " After that:"))
    events = [f"{k}) {_words_of(rng, move, things)}" for k, move in enumerate(moves, 1)]
    question = rng.choice(
        (
            f"How many {things} does {name} have now?",
            f"How many {things} are there in the end?",
            f"How many {things} are left?",
            "How many are there now?",
        )
    )
    parts = [opening, *events]
    parts = [question, *parts] if rng.random() < 0.1 else [*parts, question]
    if brief:
        parts.append(rng.choice(BRIEF))
    elif rng.random() < 0.4:
        parts.append(rng.choice(FULL))
    return ("\n" if rng.random() < 0.3 else " ").join(parts)


def _words_of(rng: random.Random, move: Move, things: str) -> str:
    """The event as the story tells it."""
    if move.sign == "*":
        tail = rng.choice((" them", f" the {things}"))
    else:
        tail = rng.choice(("", "", f" {things}", " more" if move.sign == "+" else " of them"))
    return f"{move.event}{tail}."


def _made_up_name(rng: random.Random) -> str:
    syllables = [
        rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3))
    ]
    return "".join(syllables).capitalize()
