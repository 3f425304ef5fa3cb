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
    from rho_eos.base.errors import UserError as UserError
    from rho_eos.base.outputs import FinishReason as FinishReason
    from rho_eos.base.outputs import Output as Output
    from rho_eos.base.outputs import StepRecord as StepRecord
    from rho_eos.base.outputs import Usage as Usage
    from rho_eos.base.settings import setting as setting
    from rho_eos.base.tokens import SpecialTokens as SpecialTokens
    from rho_eos.config import EngineConfig as EngineConfig
    from rho_eos.decoding.blocks import Blocks as Blocks
    from rho_eos.decoding.cache import BlockCache as BlockCache
    from rho_eos.decoding.cache import Cache as Cache
    from rho_eos.decoding.canvas import Canvas as Canvas
    from rho_eos.decoding.commit import Commit as Commit
    from rho_eos.decoding.commit import CommitParams as CommitParams
    from rho_eos.decoding.commit import CommitRule as CommitRule
    from rho_eos.decoding.edits import Append as Append
    from rho_eos.decoding.edits import Delete as Delete
    from rho_eos.decoding.edits import Insert as Insert
    from rho_eos.decoding.edits import Overwrite as Overwrite
    from rho_eos.decoding.edits import Trim as Trim
    from rho_eos.decoding.params import DecodeParams as DecodeParams
    from rho_eos.decoding.policy import Blockwise as Blockwise
    from rho_eos.decoding.policy import Infills as Infills
    from rho_eos.decoding.policy import Keeps as Keeps
    from rho_eos.decoding.policy import Policy as Policy
    from rho_eos.decoding.policy import Step as Step
    from rho_eos.decoding.policy import Windowed as Windowed
    from rho_eos.decoding.prediction import Needs as Needs
    from rho_eos.decoding.prediction import Prediction as Prediction
    from rho_eos.decoding.prediction import Probe as Probe
    from rho_eos.decoding.registry import register_cache as register_cache
    from rho_eos.decoding.registry import register_commit as register_commit
    from rho_eos.decoding.registry import register_policy as register_policy
    from rho_eos.engine.likelihood import Score as Score
    from rho_eos.engine.params import ScoreParams as ScoreParams
    from rho_eos.engine.request import StepEvent as StepEvent
    from rho_eos.llm import LLM as LLM
    from rho_eos.models.family import Family as Family
    from rho_eos.models.family import FamilyConfig as FamilyConfig
    from rho_eos.models.family import register_family as register_family
    from rho_eos.rollouts.arrays import Rollouts as Rollouts

__version__ = "0.1.0"

_HOME = {
    "config": ("EngineConfig",),
    "decoding.blocks": ("Blocks",),
    "decoding.cache": ("BlockCache", "Cache"),
    "decoding.canvas": ("Canvas",),
    "decoding.commit": ("Commit", "CommitParams", "CommitRule"),
    "decoding.edits": ("Append", "Delete", "Insert", "Overwrite", "Trim"),
    "decoding.params": ("DecodeParams",),
    "decoding.policy": ("Blockwise", "Infills", "Keeps", "Policy", "Step", "Windowed"),
    "decoding.prediction": ("Needs", "Prediction", "Probe"),
    "decoding.registry": ("register_cache", "register_commit", "register_policy"),
    "engine.likelihood": ("Score",),
    "engine.params": ("ScoreParams",),
    "engine.request": ("StepEvent",),
    "base.errors": ("UserError",),
    "llm": ("LLM",),
    "models.family": ("Family", "FamilyConfig", "register_family"),
    "base.outputs": ("FinishReason", "Output", "StepRecord", "Usage"),
    "rollouts.arrays": ("Rollouts",),
    "base.settings": ("setting",),
    "base.tokens": ("SpecialTokens",),
}

__all__ = ["__version__", *(name for names in _HOME.values() for name in names)]


def __getattr__(name: str) -> Any:
    for home, names in _HOME.items():
        if name in names:
            with paused():
                return getattr(import_module(f"rho_eos.{home}"), name)
    raise AttributeError(f"module 'rho_eos' has no attribute {name!r}")
