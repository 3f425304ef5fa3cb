"""Native masked diffusion models. Importing this registers them with transformers' Auto classes."""

from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM
from transformers.conversion_mapping import register_checkpoint_conversion_mapping

from rho_eos.models import llada
from rho_eos.models.dream import DreamConfig, DreamForMaskedLM, DreamModel
from rho_eos.models.llada import LLaDAConfig, LLaDAForMaskedLM, LLaDAModel
from rho_eos.models.qwen3 import A2DQwen3Config, A2DQwen3ForMaskedLM, A2DQwen3Model

FAMILIES = {
    "llada": (LLaDAConfig, LLaDAModel, LLaDAForMaskedLM),
    "Dream": (DreamConfig, DreamModel, DreamForMaskedLM),
    "a2d-qwen3": (A2DQwen3Config, A2DQwen3Model, A2DQwen3ForMaskedLM),
}

for _model_type, (_config, _stack, _masked_lm) in FAMILIES.items():
    AutoConfig.register(_model_type, _config, exist_ok=True)
    AutoModel.register(_config, _stack, exist_ok=True)
    AutoModelForMaskedLM.register(_config, _masked_lm, exist_ok=True)
register_checkpoint_conversion_mapping("llada", llada.weight_renames(), overwrite=True)

__all__ = [
    "FAMILIES",
    "A2DQwen3Config",
    "A2DQwen3ForMaskedLM",
    "DreamConfig",
    "DreamForMaskedLM",
    "LLaDAConfig",
    "LLaDAForMaskedLM",
]
