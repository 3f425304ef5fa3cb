"""Published models by name, so that a name without its owner or with a slip finds its model.

It is a list of suggestions, not of what may be loaded: any Hub id and any folder may be given.
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
    if name in PUBLISHED:
        return None
    given = name.strip().lower()
    by_id = {model.lower(): model for model in PUBLISHED}
    by_name = {model.lower().partition("/")[2]: model for model in PUBLISHED}
    bare = given.rpartition("/")[2]
    if given in by_id or bare in by_name:
        return by_id.get(given) or by_name[bare]
    tables = [(by_id, given), (by_name, bare)] if "/" in given else [(by_name, bare)]
    for table, wanted in tables:
        if close := difflib.get_close_matches(wanted, table, n=1, cutoff=_ALIKE):
            return table[close[0]]
    return None


def did_you_mean(name: str) -> str:
    """The suggestion as the end of a sentence; empty where there is none."""
    meant = suggestion(name)
    return f"; did you mean {meant}?" if meant else ""
