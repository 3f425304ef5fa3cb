"""Dream-7B: Qwen2's layers without the causal mask; logits at position i predict token i + 1.

Dream-Coder-7B, DiffuCoder-7B and DreamOn are the same architecture with other weights. Their
configs inherit Qwen2.5's 131,072 positions, but all of them were trained as diffusion models on
2,048.
"""

from typing import Any

from transformers import Qwen2Config, Qwen2Model, Qwen2PreTrainedModel

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.family import Family, FamilyConfig, by_model_type, supports_only


class DreamConfig(FamilyConfig, Qwen2Config):
    model_type = "Dream"
    architecture = "DreamModel"
    mask_token_id: int | None = None
    expand_token_id: int | None = None  # of DreamOn

    def __post_init__(self, **kwargs: Any) -> None:
        supports_only(self, {"use_sliding_window": False})
        super().__post_init__(**kwargs)


class DreamModel(BidirectionalStack, Qwen2Model):
    config_class = DreamConfig


class DreamForMaskedLM(MaskedDiffusionHead, Qwen2PreTrainedModel):
    config_class = DreamConfig
    stack_class = DreamModel
    prediction_shift = 1  # it was initialised from an autoregressive model and kept its offset


FAMILY = Family(
    config=DreamConfig,
    stack=DreamModel,
    masked_lm=DreamForMaskedLM,
    matches=by_model_type("Dream"),
    mask_names=("<|mask|>",),
    end_of_turn_names=("<|im_end|>",),
    context_limit=2048,
)
