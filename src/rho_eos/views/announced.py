"""What a command says on stderr, a line each: how its model runs, and what it was not made for."""

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rho_eos.llm import LLM
    from rho_eos.models.loading import Checkpoint


class _OneLine(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"rho-eos: {record.getMessage()}", file=sys.stderr, flush=True)


def load(engine_options: dict[str, Any], checkpoint: "Checkpoint | None" = None) -> "LLM":
    from rho_eos import LLM

    said = logging.getLogger("rho_eos.llm")
    handler, level, propagate = _OneLine(logging.INFO), said.level, said.propagate
    said.addHandler(handler)
    said.setLevel(logging.INFO)
    said.propagate = False  # whoever else listens would say it again
    try:
        return LLM(**engine_options, checkpoint=checkpoint)
    finally:
        said.removeHandler(handler)
        said.setLevel(level)
        said.propagate = propagate


def remark_on(model: str, prompt: Any, said: set[str] | None = None, *, beside: Any = None) -> None:
    """Say so if this prompt is of a kind the embedded model was never taught; unless it is in
    `said`, where it then is. `beside`: a suffix or a template."""
    from rho_eos.embedded.scope import note_on

    note = note_on(model, prompt, beside)
    said = set() if said is None else said
    if note is not None and note not in said:
        said.add(note)
        print(f"rho-eos: {note}", file=sys.stderr, flush=True)
