"""Variable-length generation with masked diffusion language models.

>>> from rho_eos import LLM, DecodeParams
>>> prompt = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
>>> LLM("tiny").generate([prompt], DecodeParams(preset="asym"))

Importing the package imports no torch; the names below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rho_eos.base.collector import paused

if TYPE_CHECKING:
    from rho_eos.base.errors import UserError
    from rho_eos.base.outputs import FinishReason, Output, StepRecord, Usage
    from rho_eos.base.settings import setting
    from rho_eos.base.tokens import SpecialTokens
    from rho_eos.config import EngineConfig
    from rho_eos.decoding.cache import Cache
    from rho_eos.decoding.canvas import Canvas
    from rho_eos.decoding.commit import Commit, CommitParams, CommitRule, first_open_block
    from rho_eos.decoding.edits import Append, Delete, Insert, Overwrite, Trim
    from rho_eos.decoding.params import DecodeParams
    from rho_eos.decoding.policy import Infills, Keeps, Policy, Step, Windowed
    from rho_eos.decoding.prediction import Needs, Prediction, Probe
    from rho_eos.decoding.registry import register_cache, register_commit, register_policy
    from rho_eos.engine.request import StepEvent
    from rho_eos.llm import LLM
    from rho_eos.models.family import Family, FamilyConfig, register_family
    from rho_eos.rollouts import Rollouts

__version__ = "0.1.0"

_HOME = {
    "config": ("EngineConfig",),
    "decoding.cache": ("Cache",),
    "decoding.canvas": ("Canvas",),
    "decoding.commit": ("Commit", "CommitParams", "CommitRule", "first_open_block"),
    "decoding.edits": ("Append", "Delete", "Insert", "Overwrite", "Trim"),
    "decoding.params": ("DecodeParams",),
    "decoding.policy": ("Infills", "Keeps", "Policy", "Step", "Windowed"),
    "decoding.prediction": ("Needs", "Prediction", "Probe"),
    "decoding.registry": ("register_cache", "register_commit", "register_policy"),
    "engine.request": ("StepEvent",),
    "base.errors": ("UserError",),
    "llm": ("LLM",),
    "models.family": ("Family", "FamilyConfig", "register_family"),
    "base.outputs": ("FinishReason", "Output", "StepRecord", "Usage"),
    "rollouts": ("Rollouts",),
    "base.settings": ("setting",),
    "base.tokens": ("SpecialTokens",),
}

__all__ = [
    "LLM",
    "Append",
    "Cache",
    "Canvas",
    "Commit",
    "CommitParams",
    "CommitRule",
    "DecodeParams",
    "Delete",
    "EngineConfig",
    "Family",
    "FamilyConfig",
    "FinishReason",
    "Infills",
    "Insert",
    "Keeps",
    "Needs",
    "Output",
    "Overwrite",
    "Policy",
    "Prediction",
    "Probe",
    "Rollouts",
    "SpecialTokens",
    "Step",
    "StepEvent",
    "StepRecord",
    "Trim",
    "Usage",
    "UserError",
    "Windowed",
    "__version__",
    "first_open_block",
    "register_cache",
    "register_commit",
    "register_family",
    "register_policy",
    "setting",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOME.items():
        if name in names:
            with paused():
                return getattr(import_module(f"rho_eos.{home}"), name)
    raise AttributeError(f"module 'rho_eos' has no attribute {name!r}")
