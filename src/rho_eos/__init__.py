"""Variable-length generation with masked diffusion language models.

>>> from rho_eos import LLM, DecodeParams
>>> LLM("tiny").generate(["…"], DecodeParams(preset="asym"))

Importing the package imports no torch; the names below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rho_eos.config import DecodeParams, EngineConfig
    from rho_eos.errors import UserError
    from rho_eos.llm import LLM
    from rho_eos.outputs import FinishReason, Output, StepRecord, Usage
    from rho_eos.streaming import StreamEvent

__version__ = "0.1.0"

_HOME = {
    "LLM": "llm",
    "DecodeParams": "config",
    "EngineConfig": "config",
    "FinishReason": "outputs",
    "Output": "outputs",
    "StepRecord": "outputs",
    "StreamEvent": "streaming",
    "Usage": "outputs",
    "UserError": "errors",
}

__all__ = [
    "LLM",
    "DecodeParams",
    "EngineConfig",
    "FinishReason",
    "Output",
    "StepRecord",
    "StreamEvent",
    "Usage",
    "UserError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"rho_eos.{_HOME[name]}"), name)
    raise AttributeError(f"module 'rho_eos' has no attribute {name!r}")
