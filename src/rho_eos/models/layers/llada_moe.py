"""LLaDA-MoE's layers: those of transformers' Qwen3-MoE, with LLaDA's router.

Every position uses a few of many small MLPs; the experts of a layer are stored one by one and run
as one grouped product, which on a CPU in bfloat16 is faster than a loop over them. Where weights
are quantised or kept in another type than that of the products, each expert stays a layer of its
own: it is read from its file by itself, and only those are visited that some position uses.
"""

from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import linear, softmax
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

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.families.llada_moe import LLaDAMoEConfig
from rho_eos.models.weights import check_experts

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


class _Experts:
    """Mixed into both classes: what transformers asks of a model that has experts."""

    _keep_in_fp32_modules_strict = {"expert_bias"}

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True  # transformers looks for this in the source of our file, but it is in its own

    @classmethod
    def check_folder(cls, folder: Path) -> None:
        check_experts(folder, cls.__name__)


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


class SeparateLLaDAMoEForMaskedLM(_Experts, MaskedDiffusionHead, Qwen3MoePreTrainedModel):
    config_class = LLaDAMoEConfig
    stack_class = SeparateLLaDAMoEModel
    weights = (_BIAS,)


class LLaDAMoEForMaskedLM(_Experts, MaskedDiffusionHead, Qwen3MoePreTrainedModel):
    config_class = LLaDAMoEConfig
    stack_class = LLaDAMoEModel
    separate = SeparateLLaDAMoEForMaskedLM
    weights = (
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
        _BIAS,
    )
