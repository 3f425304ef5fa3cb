"""What the embedded models can be asked: a cheap look at a prompt, and a sentence on others.

It looks at the words that the generators make problems of, so a new operation is known at once.
"""

import re
from collections.abc import Mapping
from typing import Any

from rho_eos.embedded.gsm import GAINS, LOSSES, TIMES
from rho_eos.embedded.programs import CodeTask, TinyHumanEval, TinyMbpp
from rho_eos.models.known import EMBEDDED

EXAMPLE = "Mia has 8 plums. 1) buys 6. 2) eats 5. 3) doubles them. How many are there now?"
NOTE = (
    "the embedded models know four kinds of numbered problems (stories, sums, list and number "
    "programs) and this prompt looks like none of them, so expect nonsense; ask for example "
    f'"{EXAMPLE}"'
)
TURNS = (
    "this model was taught single questions and often answers an earlier one again: begin a new "
    "conversation for each"
)
LARGEST = 40  # of the numbers in its stories and sums

_ITEM = re.compile(r"(?:^|\s)([0-9]{1,2})\) ([^\n]*?)(?=\s[0-9]{1,2}\) |\n|$)")
_TERM = re.compile(r"(?:[-+] )?\([0-9]+ [-+*×] [0-9]+\)")
_EVENT = re.compile(
    rf"(?:(?:{'|'.join((*GAINS, *LOSSES))}) [0-9]+|(?:{'|'.join(TIMES.values())}))\b.*"
)


def note_on(model: str, prompt: Any, beside: Any = None) -> str | None:
    """What to say of a prompt: nothing, unless an embedded model was never taught such.

    `beside`: a suffix or a template. Then the text may go on behind the problem, and a template may
    stand alone.
    """
    if model not in EMBEDDED:
        return None
    said = _said(prompt or beside)
    known = looks_known if beside is None else begins_known
    if said and not known(said[-1]):
        return NOTE
    return TURNS if len(said) > 1 else None


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


def _said(prompt: Any) -> list[str]:
    """The text, or all that a user said; nothing of token ids."""
    if isinstance(prompt, Mapping):
        prompt = prompt.get("prompt", prompt.get("messages"))
    if isinstance(prompt, str):
        return [prompt]
    return [
        message["content"]
        for message in prompt or []
        if isinstance(message, Mapping)
        and message.get("role") == "user"
        and isinstance(message.get("content"), str)
    ]
