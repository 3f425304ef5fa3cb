"""Loading a model for a command: how it will run is said in a line on stderr, before the wait."""

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rho_eos.llm import LLM


class _OneLine(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(f"rho-eos: {record.getMessage()}", file=sys.stderr, flush=True)


def load(engine_options: dict[str, Any]) -> "LLM":
    from rho_eos.llm import LLM

    said = logging.getLogger("rho_eos.llm")
    handler, level, propagate = _OneLine(logging.INFO), said.level, said.propagate
    said.addHandler(handler)
    said.setLevel(logging.INFO)
    said.propagate = False  # whoever else listens would say it again
    try:
        return LLM(**engine_options)
    finally:
        said.removeHandler(handler)
        said.setLevel(level)
        said.propagate = propagate
