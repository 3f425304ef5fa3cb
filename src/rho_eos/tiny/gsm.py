"""tiny-gsm: word problems of 1 to 12 steps, answered step by step.

One number (0 to 40) is carried through a story; each sentence adds, takes away or multiplies. The
answer never repeats a name or a thing, so words the model has never seen do no harm.
"""

from __future__ import annotations

import random

from rho_eos.tiny.problem import Problem, Task, final_number


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
LOSSES = ("loses", "sells", "eats", "drops", "uses", "breaks", "gives away", "throws away")
MONTHS = _words(
    "January February March April May June July August September October November December"
)
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
ORDINALS = _words(
    "First Second Third Fourth Fifth Sixth Seventh Eighth Ninth Tenth Eleventh Twelfth"
)
ANCHORS = {
    "numbers": [f"{k})" for k in range(1, 13)],
    "months": [f"In {month}" for month in MONTHS],
    "days": [f"On {day}" for day in DAYS],
    "ordinals": [f"{ordinal}," for ordinal in ORDINALS],
}
BRIEF = ("Be brief.", "Answer briefly.", "Short answer please.")
FULL = ("Explain each step.", "Think step by step.", "Show each step.")
UNANCHORED_STEPS = 6  # longer stories always say which sentence is which


class TinyGsm(Task):
    """Word problems; see the module."""

    name = "tiny-gsm"
    max_steps = 12

    def draw(self, rng: random.Random, steps: int) -> Problem:
        start = rng.randint(2, 20)
        moves = _moves(rng, start, steps)
        brief = rng.randrange(4) == 0
        answer = _brief(start, moves) if brief else _full(start, moves)
        prompt = _story(rng, start, moves, brief)
        return Problem("", prompt, answer, {"steps": steps, "brief": brief})

    def extract(self, text: str) -> str:
        return final_number(text)

    def grade(self, problem: Problem, text: str) -> bool:
        return self.extract(text) == self.extract(problem.answer)


Move = tuple[str, int, int]  # sign, operand, the number afterwards


def _moves(rng: random.Random, value: int, steps: int) -> list[Move]:
    moves = []
    for _ in range(steps):
        choices = ["+"] * (value <= 31) * 4 + ["-"] * (value >= 9) * 4 + ["*"] * (value <= 13)
        sign = rng.choice(choices)
        operand = rng.randint(2, 3) if sign == "*" else rng.randint(1, 9)
        value = {"+": value + operand, "-": value - operand, "*": value * operand}[sign]
        moves.append((sign, operand, value))
    return moves


def _brief(value: int, moves: list[Move]) -> str:
    lines = []
    for k, (sign, operand, after) in enumerate(moves, 1):
        lines.append(f"{k}) {value} {sign} {operand} = {after}\n")
        value = after
    return "".join(lines) + f"#### {value}"


def _full(value: int, moves: list[Move]) -> str:
    lines = [f"Start with {value}.\n"]
    for k, (sign, operand, after) in enumerate(moves, 1):
        event, verb = {
            "+": (f"gets {operand} more", f"add {operand} to it"),
            "-": (f"has {operand} fewer", f"take {operand} from it"),
            "*": (f"has {operand} times", f"multiply it by {operand}"),
        }[sign]
        lines.append(
            f"{k}) {event}, so now we have {value} and {verb}: {value} {sign} {operand} = {after}\n"
        )
        value = after
    return "".join(lines) + f"#### {value}"


def _story(rng: random.Random, start: int, moves: list[Move], brief: bool) -> str:
    name = _made_up_name(rng) if rng.random() < 0.13 else rng.choice(NAMES)
    things = rng.choice(THINGS)
    subject = rng.choice(("he", "she", "they", name))
    opening = rng.choice(
        (
            f"{name} has {start} {things}.",
            f"{name} starts with {start} {things}.",
            f"At first {name} has {start} {things}.",
            f"There are {start} {things} in the box of {name}.",
        )
    )
    kinds = [kind for kind, anchors in ANCHORS.items() if len(anchors) >= len(moves)]
    free = len(moves) <= UNANCHORED_STEPS and rng.random() < 0.25
    anchors = ANCHORS["numbers"]
    if free:
        anchors = [""] * len(moves)
    elif rng.random() < 0.25:
        anchors = ANCHORS[rng.choice(kinds)]
    sentences = [
        _sentence(rng, anchor, subject, move, things)
        for anchor, move in zip(anchors, moves, strict=False)
    ]
    question = rng.choice(
        (
            f"How many {things} does {name} have now?",
            f"How many {things} are there in the end?",
            f"How many {things} are left?",
            "How many are there now?",
        )
    )
    parts = [opening, *sentences]
    parts = [question, *parts] if rng.random() < 0.1 else [*parts, question]
    if brief:
        parts.append(rng.choice(BRIEF))
    elif rng.random() < 0.4:
        parts.append(rng.choice(FULL))
    text = ("\n" if rng.random() < 0.15 else " ").join(parts)
    return text.lower() if free and rng.random() < 0.15 else text


def _sentence(rng: random.Random, anchor: str, subject: str, move: Move, things: str) -> str:
    sign, operand, _ = move
    if not anchor:
        anchor = rng.choice(("", "", "Then", "Next,", "After that"))
    if sign == "*":
        verb = "doubles" if operand == 2 else "triples"
        event = rng.choice((f"{verb} the {things}", f"has {operand} times as many"))
    else:
        verb = rng.choice(GAINS if sign == "+" else LOSSES)
        tail = rng.choice(("", "", f" {things}", " more" if sign == "+" else " of them"))
        event = f"{verb} {operand}{tail}"
    words = f"{anchor} {subject} {event}." if anchor else f"{subject} {event}."
    return words[0].upper() + words[1:]


def _made_up_name(rng: random.Random) -> str:
    syllables = [
        rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3))
    ]
    return "".join(syllables).capitalize()
