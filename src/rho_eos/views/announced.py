"""What a command says on stderr, a line each: how its model runs, and what it was not made for."""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rho_eos.llm import LLM
    from rho_eos.models.loading import Checkpoint


def say(message: str) -> None:
    print(f"rho-eos: {message}", file=sys.stderr, flush=True)


def load(engine_options: dict[str, Any], checkpoint: "Checkpoint | None" = None) -> "LLM":
    """Load a model, and say on which device and in which precision it runs."""
    from rho_eos.llm import LLM

    llm = LLM(**engine_options, checkpoint=checkpoint)
    say(f"{llm.config.model}: {llm.placement.sentence}")
    if llm.checkpoint.blocks_note:
        say(llm.checkpoint.blocks_note)
    return llm


def remark_on(model: str, prompt: Any, said: set[str] | None = None, *, beside: Any = None) -> None:
    """Say so if this prompt is of a kind that the embedded model was never taught.

    Args:
        model: The model's name; nothing is said of others.
        prompt: A text, messages, or a mapping that holds either.
        said: What was said before, which is not said again.
        beside: A suffix or a template.
    """
    from rho_eos.embedded.scope import note_on

    note = note_on(model, prompt, beside)
    said = set() if said is None else said
    if note is not None and note not in said:
        said.add(note)
        say(note)
