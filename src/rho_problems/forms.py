"""A cheap look at a prompt: whether it has the form of a problem that is generated here.

It looks for the words that the generators make problems of, so a new operation is known at once.
"""

import re

from rho_problems.gsm import GAINS, LOSSES, TIMES
from rho_problems.programs import CodeTask, TinyHumanEval, TinyMbpp

LARGEST = 40  # of the numbers in its stories and sums

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
        return small
    if all(_EVENT.match(text) for text in texts):
        return small and "How many" in prompt
    phrases = _phrases(TinyHumanEval if prompt.startswith("def ") else TinyMbpp)
    return all(phrases.fullmatch(text) for text in texts)


def begins_known(document: str) -> bool:
    """Whether its first lines are one of the four tasks, whatever follows them."""
    lines = document.splitlines()
    return any(looks_known("\n".join(lines[:count])) for count in range(1, len(lines) + 1))


def _phrases(task: type[CodeTask]) -> re.Pattern[str]:
    phrases = [re.escape(phrase) for each in task.operations for phrase in each.phrases]
    return re.compile("|".join(phrase.replace(r"\{k\}", "[0-9]{1,2}") for phrase in phrases))
