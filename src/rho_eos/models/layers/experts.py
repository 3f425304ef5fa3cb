"""What all families with experts share: how experts are stored, read and run.

Every position uses a few of many small MLPs; the experts of a layer are stored one by one and run
as one grouped product, which on a CPU in bfloat16 is faster than a loop over them. Where weights
are quantised or kept in another type than that of the products, each expert stays a layer of its
own: it is read from its file by itself, and only those are visited that some position uses. On CUDA
that loop would wait for the device in every layer, so there quantised experts are merged again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import silu
from transformers.core_model_loading import Concatenate, MergeModulelist, WeightConverter
from transformers.integrations.moe import grouped_mm_experts_forward
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeMLP

from rho_eos.models.quantize import QuantizedLinear
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

    def merged(self, quantise: Callable[[nn.Linear], QuantizedLinear]) -> "QuantizedExperts":
        """All experts as two quantised weights."""
        gates = [part for each in self for part in (each.gate_proj, each.up_proj)]
        downs = [each.down_proj for each in self]
        return QuantizedExperts(len(self), *(quantise(_stacked(all_)) for all_ in (gates, downs)))


def _stacked(layers: list[Any]) -> nn.Linear:
    """The outputs of several layers as those of one."""
    weight = torch.cat([layer.weight for layer in layers])
    stacked = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    stacked.weight = nn.Parameter(weight, requires_grad=False)
    return stacked


class QuantizedExperts(nn.Module):
    """Experts whose weights are quantised, and widened for one grouped product of all.

    It reads all experts, where a loop would read those in use; but a canvas uses nearly all, and a
    grouped product has as many kernels as one of a single expert, and nothing to wait for.
    Activations stay as they are.
    """

    # What transformers' function asks of experts.
    has_gate, has_bias, is_transposed, has_post_expert_norm = True, False, False, False
    _is_expert_parallel = False

    def __init__(self, count: int, gate_up: QuantizedLinear, down: QuantizedLinear) -> None:
        super().__init__()
        self.num_experts, self.gate_up, self.down = count, gate_up, down

    @property
    def gate_up_proj(self) -> torch.Tensor:
        return self.gate_up.values(self.dtype).unflatten(0, (self.num_experts, -1))

    @property
    def down_proj(self) -> torch.Tensor:
        return self.down.values(self.dtype).unflatten(0, (self.num_experts, -1))

    def _apply_gate(self, both: torch.Tensor) -> torch.Tensor:
        gate, up = both.chunk(2, -1)
        return silu(gate) * up

    def forward(
        self, hidden: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """(positions, width), given for each position its experts and their weights."""
        self.dtype = hidden.dtype
        return grouped_mm_experts_forward(self, hidden, experts, weights)


class OneByOne:
    """Mixed into a stack with experts: they are not merged, each stays a layer of its own."""

    layers: nn.ModuleList

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        for layer in self.layers:
            if hasattr(layer.mlp, "experts"):
                layer.mlp.experts = SeparateExperts(config)
