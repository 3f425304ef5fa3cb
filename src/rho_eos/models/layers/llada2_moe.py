"""LLaDA2's layers: those of transformers' GLM-4-MoE, under LLaDA2's weight names.

Heads are normalised before half of each is rotated. The router chooses within the best groups of
experts, by sigmoids to which a bias is added for the choice only, and every position also uses the
shared expert.
"""

from typing import Any, cast

from transformers.core_model_loading import Split, WeightConverter, WeightRenaming
from transformers.models.glm4_moe.modeling_glm4_moe import (
    Glm4MoeModel,
    Glm4MoeMoE,
    Glm4MoePreTrainedModel,
)

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.families.llada2_moe import LLaDA2MoEConfig
from rho_eos.models.layers.experts import MERGED, OneByOne, WithExperts

_NAMES = (
    WeightConverter(
        source_patterns="attention.query_key_value.weight",
        target_patterns=[f"self_attn.{part}_proj.weight" for part in "qkv"],
        operations=[Split(dim=0)],
    ),
    WeightRenaming("attention.dense", "self_attn.o_proj"),
    WeightRenaming("attention.query_layernorm", "self_attn.q_norm"),
    WeightRenaming("attention.key_layernorm", "self_attn.k_norm"),
    WeightRenaming("mlp.gate.expert_bias", "mlp.gate.e_score_correction_bias"),
    WeightRenaming("word_embeddings", "embed_tokens"),
)


class LLaDA2MoEModel(WithExperts, BidirectionalStack, Glm4MoeModel):
    config_class = LLaDA2MoEConfig

    def __init__(self, config: LLaDA2MoEConfig) -> None:
        super().__init__(config)
        for layer in cast(Any, self.layers):
            if isinstance(layer.mlp, Glm4MoeMoE):  # the published code does not read norm_topk_prob
                layer.mlp.gate.norm_topk_prob = config.num_experts_per_tok > 1


class SeparateLLaDA2MoEModel(OneByOne, LLaDA2MoEModel):
    pass


class _Head(WithExperts, MaskedDiffusionHead):
    _keys_to_ignore_on_load_unexpected = None  # GLM's, which would hide a layer too many


class SeparateLLaDA2MoEForMaskedLM(_Head, Glm4MoePreTrainedModel):
    config_class = LLaDA2MoEConfig
    stack_class = SeparateLLaDA2MoEModel
    weights = _NAMES


class LLaDA2MoEForMaskedLM(_Head, Glm4MoePreTrainedModel):
    config_class = LLaDA2MoEConfig
    stack_class = LLaDA2MoEModel
    separate = SeparateLLaDA2MoEForMaskedLM
    weights = (*MERGED, *_NAMES)
