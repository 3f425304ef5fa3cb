"""The embedded models, and published ones, which are suggested where a name is not found.

The list does not limit what may be loaded: any Hub id and any folder may be given.
"""

import difflib
from pathlib import Path

from rho_eos.base.errors import UserError, shown

_CHECKPOINTS = Path(__file__).parent.parent / "embedded" / "checkpoints"
#: The models that come with the package, and their folders.
EMBEDDED = {name: _CHECKPOINTS / name for name in ("tiny", "terse", "tiny-blocks")}
#: By Hub id, each with its parameters in billions as its publishers round them.
PUBLISHED: dict[str, float] = {
    "GSAI-ML/LLaDA-8B-Base": 8,
    "GSAI-ML/LLaDA-8B-Instruct": 8,
    "GSAI-ML/LLaDA-1.5": 8,
    "GSAI-ML/iLLaDA-8B-Base": 8,
    "GSAI-ML/iLLaDA-8B-Instruct": 8,
    "inclusionAI/LLaDA-MoE-7B-A1B-Base": 7,
    "inclusionAI/LLaDA-MoE-7B-A1B-Instruct": 7,
    "Dream-org/Dream-v0-Base-7B": 7,
    "Dream-org/Dream-v0-Instruct-7B": 7,
    "Dream-org/Dream-Coder-v0-Base-7B": 7,
    "Dream-org/Dream-Coder-v0-Instruct-7B": 7,
    "apple/DiffuCoder-7B-Base": 7,
    "apple/DiffuCoder-7B-Instruct": 7,
    "apple/DiffuCoder-7B-cpGRPO": 7,
    "dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1": 0.6,
    "dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1": 0.6,
    "dllm-hub/Qwen2.5-Coder-0.5B-Instruct-diffusion-bd3lm-v0.1": 0.5,
    "JetLM/SDAR-1.7B-Chat": 1.7,
    "JetLM/SDAR-4B-Chat": 4,
    "JetLM/SDAR-8B-Chat": 8,
    "JetLM/SDAR-30B-A3B-Chat": 30,
    "JetLM/SDAR-30B-A3B-Sci": 30,
    "Gen-Verse/TraDo-4B-Instruct": 4,
    "Gen-Verse/TraDo-8B-Instruct": 8,
    "inclusionAI/LLaDA2.0-mini": 16,
    "inclusionAI/LLaDA2.0-flash": 100,
    "inclusionAI/LLaDA2.1-mini": 16,
    "inclusionAI/LLaDA2.1-flash": 100,
    "Efficient-Large-Model/Fast_dLLM_v2_1.5B": 1.5,
    "Efficient-Large-Model/Fast_dLLM_v2_7B": 7,
}
#: Kinds of models that are refused, by the beginning of their model_type, and why.
REFUSED_TYPES = {
    "diffusion_gemma": "DiffusionGemma starts from random tokens and commits none until its end, "
    "so there is no MASK to decode",
    "wedlm": "WeDLM moves its positions and attends to the left only, which no engine here does",
    "bd3lm": "BD3-LM's own models are told how much noise a text has, which no family here is",
    "nemotron_labs_diffusion": "Nemotron-Labs-Diffusion keeps finished text with causal attention, "
    "which is not built yet",
}
#: Models that are refused by what their name holds, as their config is that of a known family.
REFUSED_NAMES = {
    "llada2.2": "LLaDA2.2 chooses its experts for whole blocks and changes their length, which is "
    "not built; LLaDA2.0 and LLaDA2.1 run",
}
_ALIKE = 0.75  # of 1: two slips in a name of ten letters, not another model


def refuse_type(model_type: object) -> None:
    """Say of a config's model_type why there is no such family, where that is known."""
    for start, why in REFUSED_TYPES.items():
        if str(model_type).lower().startswith(start):
            raise UserError(f"model_type is {shown(model_type)}: {why}")


def refuse_name(model: str) -> None:
    """Say of a Hub id or a folder why such models are refused, where that is known."""
    for part, why in REFUSED_NAMES.items():
        if part in "/".join(Path(model).parts[-2:]).lower():
            raise UserError(f"model is {shown(model)}: {why}")


def did_you_mean(name: str) -> str:
    """The end of a sentence, with the published model that was probably meant; or nothing.

    It is found by its name without the owner, or by one that is much like it.
    """
    given = name.strip().lower()
    by_name = {model.lower().partition("/")[2]: model for model in PUBLISHED}
    close = difflib.get_close_matches(given.rpartition("/")[2], by_name, n=1, cutoff=_ALIKE)
    if not close or name in PUBLISHED or given.startswith("."):
        return ""
    return f"; did you mean {by_name[close[0]]}?"
