"""SDAR: Qwen3's layers with attention in blocks, with experts and without; also TraDo.

The lengths of blocks (4, 8, 16, 32 or 64) often stand in the names of its models only.
"""

from typing import Any

from transformers import Qwen3Config, Qwen3MoeConfig

from rho_eos.decoding.blocks import Blocks
from rho_eos.models.family import Family, FamilyConfig, check_choice, register_family

_FIELDS = ("block_length", "block_size")


class SDARConfig(FamilyConfig, Qwen3Config):
    model_type = "sdar"
    architecture = "SDARForCausalLM"
    block_fields = _FIELDS


class SDARMoEConfig(FamilyConfig, Qwen3MoeConfig):
    model_type = "sdar_moe"
    architecture = "SDARMoeForCausalLM"
    block_fields = _FIELDS
    supported = {
        **FamilyConfig.supported,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    required = (
        *FamilyConfig.required,
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
    )
    attribute_map = {"num_local_experts": "num_experts"}  # saved under the published name

    norm_topk_prob: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        check_choice(self, self.num_experts)

    def mlp_widths(self) -> list[int]:
        return [self.num_experts * self.moe_intermediate_size] * self.num_hidden_layers


for config, layers in (
    (SDARConfig, "Qwen3"),
    (SDARMoEConfig, "rho_eos.models.layers.sdar_moe:SDARMoEForMaskedLM"),
):
    register_family(
        Family(
            config,
            layers,
            mask_names=("<|MASK|>",),
            eos_names=("<|endoftext|>",),
            end_of_turn_names=("<|im_end|>",),
            blocks=Blocks(4),
            decoding={"threshold": 0.9},
        )
    )
