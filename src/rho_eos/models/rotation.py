"""Rotation of queries and keys in float32, whatever the weights are stored in.

transformers rounds cosines, sines and each product with them to the type of the hidden states; in
bfloat16 that keeps three digits. LLaDA's own code rotates in float32 where its config says so
(`rope_full_precision`, as all published ones do) and rounds once, behind the rotation.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    apply_rotary_pos_emb,
    eager_attention_forward,
)


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
