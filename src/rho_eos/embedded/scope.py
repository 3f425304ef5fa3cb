"""What is said of a prompt that an embedded model was never taught."""

from collections.abc import Mapping
from typing import Any

from rho_eos.models.known import EMBEDDED
from rho_problems.forms import begins_known, looks_known

EXAMPLE = "Mia has 8 plums. 1) buys 6. 2) eats 5. 3) doubles them. How many are there now?"
ABLE = (
    "the embedded models know four kinds of numbered problems (stories, sums, list and number "
    "programs)"
)
NOTE = (
    f"{ABLE} and this prompt looks like none of them, so expect nonsense; ask for example "
    f'"{EXAMPLE}"'
)
TURNS = (
    "this model was taught single questions and often answers an earlier one again: begin a new "
    "conversation for each"
)


def ability_of(model: str) -> str | None:
    """What to say before anything was asked; None of models that are not embedded."""
    return f'{ABLE}, one question at a time, for example "{EXAMPLE}"' if model in EMBEDDED else None


def note_on(model: str, prompt: Any, beside: Any = None) -> str | None:
    """A sentence for people who give an embedded model a prompt that it was never taught.

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


def _said(prompt: Any) -> list[str]:
    """The text of a prompt, or all that a user said in a chat; nothing for token ids."""
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
