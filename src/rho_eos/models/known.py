"""The embedded models, and published ones, which are suggested where a name is not found.

The list does not limit what may be loaded: any Hub id and any folder may be given.
"""

import difflib
from pathlib import Path

_CHECKPOINTS = Path(__file__).parent.parent / "embedded" / "checkpoints"
#: The models that come with the package, and their folders.
EMBEDDED = {name: _CHECKPOINTS / name for name in ("tiny", "terse")}
PUBLISHED = (
    "GSAI-ML/LLaDA-8B-Base",
    "GSAI-ML/LLaDA-8B-Instruct",
    "GSAI-ML/LLaDA-1.5",
    "GSAI-ML/iLLaDA-8B-Base",
    "GSAI-ML/iLLaDA-8B-Instruct",
    "inclusionAI/LLaDA-MoE-7B-A1B-Base",
    "inclusionAI/LLaDA-MoE-7B-A1B-Instruct",
    "Dream-org/Dream-v0-Base-7B",
    "Dream-org/Dream-v0-Instruct-7B",
    "Dream-org/Dream-Coder-v0-Base-7B",
    "Dream-org/Dream-Coder-v0-Instruct-7B",
    "apple/DiffuCoder-7B-Base",
    "apple/DiffuCoder-7B-Instruct",
    "apple/DiffuCoder-7B-cpGRPO",
    "dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1",
)
_ALIKE = 0.75  # of 1: two slips in a name of ten letters, not another model


def suggestion(name: str) -> str | None:
    """The published model that was probably meant: by its bare name, or by a name much like it."""
    given = name.strip().lower()
    by_name = {model.lower().partition("/")[2]: model for model in PUBLISHED}
    if name in PUBLISHED or given.startswith("."):
        return None
    close = difflib.get_close_matches(given.rpartition("/")[2], by_name, n=1, cutoff=_ALIKE)
    return by_name[close[0]] if close else None


def did_you_mean(name: str) -> str:
    """The suggestion as the end of a sentence; empty where there is none."""
    meant = suggestion(name)
    return f"; did you mean {meant}?" if meant else ""
