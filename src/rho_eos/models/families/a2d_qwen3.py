"""A2D-Qwen3 (dllm-hub): Qwen3 turned into a masked diffusion model; bidirectional, no shift."""

from typing import Any

from transformers import Qwen3Config, Qwen3Model, Qwen3PreTrainedModel

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.family import Family, FamilyConfig, by_model_type, supports_only


class A2DQwen3Config(FamilyConfig, Qwen3Config):
    model_type = "a2d-qwen3"
    architecture = "A2DQwen3LMHeadModel"
    mask_token_id: int | None = None  # the published config leaves it to the tokenizer

    def __post_init__(self, **kwargs: Any) -> None:
        supports_only(self, {"use_sliding_window": False})
        super().__post_init__(**kwargs)


class A2DQwen3Model(BidirectionalStack, Qwen3Model):
    config_class = A2DQwen3Config


class A2DQwen3ForMaskedLM(MaskedDiffusionHead, Qwen3PreTrainedModel):
    config_class = A2DQwen3Config
    stack_class = A2DQwen3Model


FAMILY = Family(
    config=A2DQwen3Config,
    stack=A2DQwen3Model,
    masked_lm=A2DQwen3ForMaskedLM,
    matches=by_model_type("a2d-qwen3"),
    mask_names=("<|mask|>",),
    end_of_turn_names=("<|im_end|>",),
)
