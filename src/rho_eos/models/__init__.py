"""Native masked diffusion models. Importing this registers them with transformers' Auto classes."""

from rho_eos.base.collector import paused

with paused():
    from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM
    from transformers.conversion_mapping import register_checkpoint_conversion_mapping

    from rho_eos.models.families import load_families
    from rho_eos.models.families.a2d_qwen3 import A2DQwen3Config, A2DQwen3ForMaskedLM
    from rho_eos.models.families.dream import DreamConfig, DreamForMaskedLM
    from rho_eos.models.families.llada import LLaDAConfig, LLaDAForMaskedLM
    from rho_eos.models.family import FAMILIES, find_family

    load_families()
for _family in FAMILIES.values():
    AutoConfig.register(_family.name, _family.config, exist_ok=True)
    AutoModel.register(_family.config, _family.stack, exist_ok=True)
    AutoModelForMaskedLM.register(_family.config, _family.masked_lm, exist_ok=True)
    if _family.weights:
        register_checkpoint_conversion_mapping(_family.name, [*_family.weights], overwrite=True)
    if _family.separate is not None:
        for _class in (_family.separate, _family.separate.stack_class):
            register_checkpoint_conversion_mapping(
                _class.__name__, [*_family.separate_weights], overwrite=True
            )

__all__ = [
    "FAMILIES",
    "A2DQwen3Config",
    "A2DQwen3ForMaskedLM",
    "DreamConfig",
    "DreamForMaskedLM",
    "LLaDAConfig",
    "LLaDAForMaskedLM",
    "find_family",
]
