"""A2D-Qwen2 (dllm-hub): Qwen2 turned into a masked diffusion model; bidirectional, no shift."""

from typing import Any

from transformers import Qwen2Config, Qwen2Model, Qwen2PreTrainedModel

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.family import Family, FamilyConfig, by_model_type, supports_only


class A2DQwen2Config(FamilyConfig, Qwen2Config):
    model_type = "a2d-qwen2"
    architecture = "A2DQwen2LMHeadModel"
    mask_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        supports_only(self, {"use_sliding_window": False})
        super().__post_init__(**kwargs)


class A2DQwen2Model(BidirectionalStack, Qwen2Model):
    config_class = A2DQwen2Config


class A2DQwen2ForMaskedLM(MaskedDiffusionHead, Qwen2PreTrainedModel):
    config_class = A2DQwen2Config
    stack_class = A2DQwen2Model


FAMILY = Family(
    config=A2DQwen2Config,
    stack=A2DQwen2Model,
    masked_lm=A2DQwen2ForMaskedLM,
    matches=by_model_type("a2d-qwen2"),
    mask_names=("<|mask|>",),
    end_of_turn_names=("<|im_end|>",),
)
