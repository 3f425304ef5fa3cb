"""A cheap look at a prompt: whether it has the form of a problem that is generated here.

It looks for the words that the generators make problems of, so a new operation is known at once.
"""

import re
from collections.abc import Iterable

from rho_problems.gsm import GAINS, LOSSES, TIMES
from rho_problems.programs import CodeTask, TinyHumanEval, TinyMbpp

LARGEST = 40  # of the numbers and totals in its stories and sums

_ITEM = re.compile(r"(?:^|\s)([0-9]{1,2})\) ([^\n]*?)(?=\s[0-9]{1,2}\) |\n|$)")
_TERM = re.compile(r"(?:[-+] )?\([0-9]+ [-+*×] [0-9]+\)")
_EVENT = re.compile(
    rf"(?:(?:{'|'.join((*GAINS, *LOSSES))}) [0-9]+|(?:{'|'.join(TIMES.values())}))\b.*"
)


def looks_known(prompt: str) -> bool:
    """Whether a prompt has the form of one of the four tasks. It may still hold a new wording."""
    items = _ITEM.findall(prompt)
    if [int(number) for number, _ in items] != list(range(1, len(items) + 1)) or not items:
        return False
    texts = [text.strip() for _, text in items]
    small = all(int(number) <= LARGEST for number in re.findall(r"[0-9]+", prompt))
    if all(_TERM.fullmatch(text) for text in texts):
        return small and _stays_small(0, map(_value, texts))
    if all(_EVENT.match(text) for text in texts):
        start = re.search(r"[0-9]+", prompt[: prompt.index("1) ")])
        counts = start is None or _stays_small(int(start[0]), map(_change, texts))
        return small and counts and "How many" in prompt
    phrases = _phrases(TinyHumanEval if prompt.startswith("def ") else TinyMbpp)
    return all(phrases.fullmatch(text) for text in texts)


def _stays_small(total: int, changes: Iterable[tuple[int, int]]) -> bool:
    """Whether a total keeps from 0 to the largest number; a change is a factor and a summand."""
    for factor, summand in changes:
        total = total * factor + summand
        if not 0 <= total <= LARGEST:
            return False
    return True


def _value(term: str) -> tuple[int, int]:
    """What a bracket such as `- (17 - 5)` adds."""
    left, sign, right = term.lstrip("+- ").strip("()").split()
    a, b = int(left), int(right)
    value = {"+": a + b, "-": a - b}.get(sign, a * b)
    return 1, -value if term.startswith("-") else value


def _change(event: str) -> tuple[int, int]:
    """What an event such as `buys 6` does to the number of a story."""
    for factor, verb in TIMES.items():
        if event.startswith(verb):
            return factor, 0
    verb, number, *_ = re.split(r"[^A-Za-z0-9]+", event)
    return 1, int(number) if verb in GAINS else -int(number)


def begins_known(document: str) -> bool:
    """Whether its first lines are one of the four tasks, whatever follows them."""
    lines = document.splitlines()
    return any(looks_known("\n".join(lines[:count])) for count in range(1, len(lines) + 1))


def _phrases(task: type[CodeTask]) -> re.Pattern[str]:
    phrases = [re.escape(phrase) for each in task.operations for phrase in each.phrases]
    return re.compile("|".join(phrase.replace(r"\{k\}", "[0-9]{1,2}") for phrase in phrases))
