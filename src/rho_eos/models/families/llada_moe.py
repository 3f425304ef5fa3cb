"""LLaDA-MoE: LLaDA with experts, on the layers of transformers' Qwen3-MoE without the causal mask.

It shares LLaDA's model_type, but neither its config fields nor its weight names. Every position
uses a few of many small MLPs; the experts of a layer are stored one by one and run as one grouped
product, which on a CPU in bfloat16 is faster than a loop over them. Where weights are quantised or
kept in another type than that of the products, each expert stays a layer of its own: it is read
from its file by itself, and only those are visited that some position uses.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import linear, softmax
from transformers import PreTrainedConfig
from transformers.core_model_loading import (
    Concatenate,
    MergeModulelist,
    WeightConverter,
    WeightRenaming,
)
from transformers.models.qwen3_moe.modeling_qwen3_moe import (
    Qwen3MoeMLP,
    Qwen3MoeModel,
    Qwen3MoePreTrainedModel,
    Qwen3MoeSparseMoeBlock,
    Qwen3MoeTopKRouter,
)

from rho_eos.base.errors import UserError
from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.expert_files import check_experts
from rho_eos.models.family import Family, FamilyConfig, supports_only

#: Options of the published config that the checkpoints we know leave at these values.
_ONLY_SUPPORTED: dict[str, Any] = {
    "moe_router_score_function": "softmax",
    "partial_rotary_factor": 1,
    "routed_scaling_factor": 1,
    "router_num_group": None,
    "router_topk_group": None,
    "shared_expert_intermediate_size": None,
    "clip_qkv": None,
}


class LLaDAMoEConfig(FamilyConfig, PreTrainedConfig):
    """The published fields; `attribute_map` lets Qwen3-MoE's layers read them by their names."""

    model_type = "llada-moe"  # the family's name: published configs say llada, and so do saved ones
    architecture = "LLaDAMoEModelLM"
    required = (
        "hidden_size",
        "expert_intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_experts_per_tok",
        "vocab_size",
    )
    attribute_map = {
        "intermediate_size": "dense_intermediate_size",
        "moe_intermediate_size": "expert_intermediate_size",
    }

    vocab_size: int = 157184
    hidden_size: int = 2048
    dense_intermediate_size: int | None = 8192
    expert_intermediate_size: int = 1024
    shared_expert_intermediate_size: int | None = None
    num_hidden_layers: int = 16
    num_attention_heads: int = 16
    num_key_value_heads: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    partial_rotary_factor: float = 1
    attention_bias: bool = False
    attention_dropout: float = 0.0
    clip_qkv: float | None = None
    qk_layernorm: bool = True
    num_experts: int = 64
    num_experts_per_tok: int = 8
    #: Published, but the published code does not read it: weights are never made to sum to one.
    norm_topk_prob: bool | None = None
    moe_layer_freq: list[int] | None = None  # 1: experts, 0: one dense MLP
    moe_router_enable_expert_bias: bool = False
    moe_router_score_function: str = "softmax"
    routed_scaling_factor: float = 1
    router_num_group: int | None = None
    router_topk_group: int | None = None
    mask_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        supports_only(self, _ONLY_SUPPORTED)
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        layers = self.num_hidden_layers
        self.moe_layer_freq = [1] * layers if self.moe_layer_freq is None else self.moe_layer_freq
        good = isinstance(self.moe_layer_freq, list) and set(self.moe_layer_freq) <= {0, 1}
        if not good or len(self.moe_layer_freq) != layers:
            raise UserError(
                f"llada-moe config field moe_layer_freq is {self.moe_layer_freq!r}; it takes a 0 "
                f"or 1 for each of the {layers} layers"
            )
        if not 1 <= self.num_experts_per_tok <= self.num_experts:
            raise UserError(
                f"llada-moe config field num_experts_per_tok is {self.num_experts_per_tok}; "
                f"it takes 1 to num_experts, which is {self.num_experts}"
            )
        super().__post_init__(**kwargs)

    @property
    def mlp_only_layers(self) -> list[int]:
        """What Qwen3-MoE calls the layers without experts."""
        return [index for index, sparse in enumerate(self.moe_layer_freq or ()) if not sparse]

    @property
    def decoder_sparse_step(self) -> int:
        return 1

    def to_dict(self) -> dict[str, Any]:
        """Only published fields under the published type, so that the family's code reads it."""
        fields = super().to_dict()
        rope = dict(fields.pop("rope_parameters", None) or {})
        theta, kind = rope.pop("rope_theta", None), rope.get("rope_type", "default")
        scaling = None if kind == "default" else rope
        return fields | {"model_type": "llada", "rope_theta": theta, "rope_scaling": scaling}


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


class _Experts:
    """Mixed into both classes: what transformers asks of a model that has experts."""

    _keep_in_fp32_modules_strict = {"expert_bias"}

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True  # transformers looks for this in the source of our file, but it is in its own


class LLaDAMoEModel(_Experts, BidirectionalStack, Qwen3MoeModel):
    config_class = LLaDAMoEConfig

    def __init__(self, config: LLaDAMoEConfig) -> None:
        super().__init__(config)
        for layer in cast(Any, self.layers):
            if isinstance(layer.mlp, Qwen3MoeSparseMoeBlock):
                layer.mlp.gate = Router(config)
            if not config.qk_layernorm:
                layer.self_attn.q_norm = layer.self_attn.k_norm = nn.Identity()
        self.post_init()


class LLaDAMoEForMaskedLM(_Experts, MaskedDiffusionHead, Qwen3MoePreTrainedModel):
    config_class = LLaDAMoEConfig
    stack_class = LLaDAMoEModel

    @classmethod
    def check_folder(cls, folder: Path) -> None:
        check_experts(folder, cls.__name__)


class SeparateExperts(nn.ModuleList):
    """The experts of a layer one by one, under the names that checkpoints give them."""

    def __init__(self, config: LLaDAMoEConfig) -> None:
        width = config.expert_intermediate_size
        super().__init__(Qwen3MoeMLP(config, width) for _ in range(config.num_experts))

    def forward(
        self, hidden: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """(positions, width), given for each position its experts and their weights."""
        uses = experts.shape[-1]
        order = experts.flatten().argsort(stable=True)
        counts = experts.flatten().bincount(minlength=len(self)).tolist()
        out = torch.zeros_like(hidden)
        for expert, own in zip(self, order.split(counts), strict=True):
            if len(own):
                at = own // uses
                out.index_add_(0, at, expert(hidden[at]) * weights.flatten()[own, None])
        return out


class SeparateLLaDAMoEModel(LLaDAMoEModel):
    def __init__(self, config: LLaDAMoEConfig) -> None:
        super().__init__(config)
        for layer in cast(Any, self.layers):
            if isinstance(layer.mlp, Qwen3MoeSparseMoeBlock):
                layer.mlp.experts = SeparateExperts(config)


class SeparateLLaDAMoEForMaskedLM(LLaDAMoEForMaskedLM):
    stack_class = SeparateLLaDAMoEModel


def has_experts(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") in ("llada", "llada-moe") and bool(config.get("num_experts"))


BIAS = WeightRenaming("mlp.expert_bias", "mlp.gate.expert_bias")

FAMILY = Family(
    config=LLaDAMoEConfig,
    stack=LLaDAMoEModel,
    masked_lm=LLaDAMoEForMaskedLM,
    matches=has_experts,
    weights=(
        WeightConverter(
            source_patterns=["mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"],
            target_patterns="mlp.experts.gate_up_proj",
            operations=[MergeModulelist(dim=0), Concatenate(dim=1)],
        ),
        WeightConverter(
            source_patterns="mlp.experts.*.down_proj.weight",
            target_patterns="mlp.experts.down_proj",
            operations=[MergeModulelist(dim=0)],
        ),
        BIAS,
    ),
    separate=SeparateLLaDAMoEForMaskedLM,
    separate_weights=(BIAS,),
    mask_names=("<|mask|>",),
    end_of_turn_names=("<|role_end|>",),
)
