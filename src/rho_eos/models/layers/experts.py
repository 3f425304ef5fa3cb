"""What all families with experts share: how experts are stored, read and run.

Every position uses a few of many small MLPs; the experts of a layer are stored one by one and run
as one grouped product, which on a CPU in bfloat16 is faster than a loop over them. Where weights
are quantised or kept in another type than that of the products, each expert stays a layer of its
own: it is read from its file by itself, and only those are visited that some position uses.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeMLP

from rho_eos.models.weights import check_experts

#: From the published names to those of merged experts.
MERGED = (
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
)


class WithExperts:
    """Mixed into stack and head: what transformers asks of a model that has experts."""

    _keep_in_fp32_modules_strict = {"expert_bias", "e_score_correction_bias"}

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True  # transformers looks for this in the source of our file, but it is in its own

    @classmethod
    def check_folder(cls, folder: Path) -> None:
        check_experts(folder, cls.__name__)


class SeparateExperts(nn.ModuleList):
    """The experts of a layer one by one, under the names that checkpoints give them."""

    def __init__(self, config: Any) -> None:
        width = config.moe_intermediate_size
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
                weighted = expert(hidden[at]) * weights.flatten()[own, None]
                out.index_add_(0, at, weighted.to(out.dtype))
        return out


class OneByOne:
    """Mixed into a stack with experts: they are not merged, each stays a layer of its own."""

    layers: nn.ModuleList

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        for layer in self.layers:
            if hasattr(layer.mlp, "experts"):
                layer.mlp.experts = SeparateExperts(config)
