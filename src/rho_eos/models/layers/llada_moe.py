"""LLaDA-MoE's layers: those of transformers' Qwen3-MoE, with LLaDA's router."""

from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import linear, softmax
from transformers.core_model_loading import WeightRenaming
from transformers.models.qwen3_moe.modeling_qwen3_moe import (
    Qwen3MoeModel,
    Qwen3MoePreTrainedModel,
    Qwen3MoeSparseMoeBlock,
    Qwen3MoeTopKRouter,
)

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.families.llada_moe import LLaDAMoEConfig
from rho_eos.models.layers.experts import MERGED, OneByOne, WithExperts

_BIAS = WeightRenaming("mlp.expert_bias", "mlp.gate.expert_bias")


class Router(Qwen3MoeTopKRouter):
    """Which experts a position uses, and with what weight; decided in float32.

    The bias that balances the load in training also counts in the weights.
    """

    expert_bias: torch.Tensor | None

    def __init__(self, config: LLaDAMoEConfig) -> None:
        super().__init__(config)
        biased = config.moe_router_enable_expert_bias
        self.register_buffer("expert_bias", torch.zeros(config.num_experts) if biased else None)

    def forward(
        self, hidden_states: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hidden = hidden_states.reshape(-1, self.hidden_dim)
        logits = linear(hidden.float(), self.weight.float())  # (positions, experts)
        scores = softmax(logits, dim=-1)
        if self.expert_bias is not None:
            scores = scores + self.expert_bias
        weights, experts = scores.topk(self.top_k, dim=-1)
        return logits, weights.to(hidden.dtype), experts


class LLaDAMoEModel(WithExperts, BidirectionalStack, Qwen3MoeModel):
    config_class = LLaDAMoEConfig

    def __init__(self, config: LLaDAMoEConfig) -> None:
        super().__init__(config)
        for layer in cast(Any, self.layers):
            if isinstance(layer.mlp, Qwen3MoeSparseMoeBlock):
                layer.mlp.gate = Router(config)
            if not config.qk_layernorm:
                layer.self_attn.q_norm = layer.self_attn.k_norm = nn.Identity()
        self.post_init()


class SeparateLLaDAMoEModel(OneByOne, LLaDAMoEModel):
    pass


class SeparateLLaDAMoEForMaskedLM(WithExperts, MaskedDiffusionHead, Qwen3MoePreTrainedModel):
    config_class = LLaDAMoEConfig
    stack_class = SeparateLLaDAMoEModel
    weights = (_BIAS,)


class LLaDAMoEForMaskedLM(WithExperts, MaskedDiffusionHead, Qwen3MoePreTrainedModel):
    config_class = LLaDAMoEConfig
    stack_class = LLaDAMoEModel
    separate = SeparateLLaDAMoEForMaskedLM
    weights = (*MERGED, _BIAS)
