"""A2D-Qwen3 (dllm-hub): Qwen3 turned into a masked diffusion model; bidirectional, no shift."""

from transformers import Qwen3Config, Qwen3Model, Qwen3PreTrainedModel

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead


class A2DQwen3Config(Qwen3Config):
    model_type = "a2d-qwen3"
    mask_token_id: int | None = None  # the published config leaves it to the tokenizer


class A2DQwen3Model(BidirectionalStack, Qwen3Model):
    config_class = A2DQwen3Config


class A2DQwen3ForMaskedLM(MaskedDiffusionHead, Qwen3PreTrainedModel):
    config_class = A2DQwen3Config
    stack_class = A2DQwen3Model
