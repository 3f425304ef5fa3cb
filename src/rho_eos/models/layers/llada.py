"""LLaDA's layers: Llama's, but queries and keys are rotated in float32 whatever the weights are.

transformers rounds cosines, sines and each product with them to the type of the hidden states; in
bfloat16 that keeps three digits. LLaDA's own code rotates in float32 where its config says so
(`rope_full_precision`, as all published ones do) and rounds once, behind the rotation.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.core_model_loading import WeightRenaming
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    apply_rotary_pos_emb,
    eager_attention_forward,
)

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.families.llada import LLaDAConfig


class FullPrecisionAttention(LlamaAttention):
    """Llama's attention; given sines and cosines in float32 it also rotates in float32."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        shape = hidden_states.shape[:-1]
        query, key, value = (
            projection(hidden_states).view(*shape, -1, self.head_dim).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        cos, sin = position_embeddings
        query, key = (
            turned.to(value.dtype) for turned in apply_rotary_pos_emb(query, key, cos, sin)
        )
        attend: Callable[..., Any] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.attention_dropout if self.training else 0.0
        attended, weights = attend(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        return self.o_proj(attended.reshape(*shape, -1)), weights


class LLaDAModel(BidirectionalStack, LlamaModel):
    config_class = LLaDAConfig

    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__(config)
        if config.rope_full_precision:
            self.rotates_in_float32 = True
            for layer in self.layers:
                layer.self_attn.__class__ = FullPrecisionAttention  # the same weights


def _block(ours: str, published: str) -> WeightRenaming:
    return WeightRenaming(rf"transformer\.blocks\.(\d+)\.{published}\.", rf"layers.\1.{ours}.")


class LLaDAForMaskedLM(MaskedDiffusionHead, LlamaPreTrainedModel):
    config_class = LLaDAConfig
    stack_class = LLaDAModel
    weights = (  # to the names in transformers' Llama
        _block("self_attn.q_proj", "q_proj"),
        _block("self_attn.k_proj", "k_proj"),
        _block("self_attn.v_proj", "v_proj"),
        _block("self_attn.o_proj", "attn_out"),
        _block("mlp.gate_proj", "ff_proj"),
        _block("mlp.up_proj", "up_proj"),
        _block("mlp.down_proj", "ff_out"),
        _block("input_layernorm", "attn_norm"),
        _block("post_attention_layernorm", "ff_norm"),
        WeightRenaming(r"^model\.transformer\.wte", r"model.embed_tokens"),
        WeightRenaming(r"^model\.transformer\.ln_f", r"model.norm"),
        WeightRenaming(r"^model\.transformer\.ff_out", r"lm_head"),
    )
