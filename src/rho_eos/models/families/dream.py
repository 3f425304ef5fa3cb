"""Dream-7B: Qwen2's layers without the causal mask; logits at position i predict token i + 1.

Dream-Coder-7B, DiffuCoder-7B and DreamOn are the same architecture with other weights. Their
configs inherit Qwen2.5's 131,072 positions, but all of them were trained as diffusion models on
2,048.
"""

from transformers import Qwen2Config

from rho_eos.models.family import Family, FamilyConfig, register_family


class DreamConfig(FamilyConfig, Qwen2Config):
    model_type = "Dream"
    architecture = "DreamModel"


register_family(
    Family(
        config=DreamConfig,
        layers="Qwen2",
        prediction_shift=1,  # it was initialised from an autoregressive model and kept its offset
        mask_names=("<|mask|>",),
        end_of_turn_names=("<|im_end|>",),
        context_limit=2048,
    )
)
