"""Dream-7B: Qwen2's layers without the causal mask; logits at position i predict token i + 1."""

from transformers import Qwen2Config, Qwen2Model, Qwen2PreTrainedModel

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead


class DreamConfig(Qwen2Config):
    model_type = "Dream"
    mask_token_id: int | None = 151666


class DreamModel(BidirectionalStack, Qwen2Model):
    config_class = DreamConfig


class DreamForMaskedLM(MaskedDiffusionHead, Qwen2PreTrainedModel):
    config_class = DreamConfig
    stack_class = DreamModel
    prediction_shift = 1  # it was initialised from an autoregressive model and kept its offset
