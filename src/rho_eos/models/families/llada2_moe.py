"""LLaDA2.0 and 2.1: experts and attention in blocks, on the layers of transformers' GLM-4-MoE.

Both versions have one model_type and one layout; they differ in how they are decoded: 2.1 may
change committed tokens of the open block.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from rho_eos.base.errors import UserError, shown
from rho_eos.decoding.blocks import Blocks
from rho_eos.models.family import Family, FamilyConfig, check_choice, register_family

#: Fields that shape its experts, and the smallest value of each.
_INTEGERS = {
    "moe_intermediate_size": 1,
    "num_experts": 1,
    "num_experts_per_tok": 1,
    "num_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 0,
}


class LLaDA2MoEConfig(FamilyConfig, PreTrainedConfig):
    """The published fields; `attribute_map` lets GLM-4-MoE's layers read them by their names."""

    model_type = "llada2_moe"
    architecture = "LLaDA2MoeModelLM"
    block_fields = ("block_length", "block_size")
    required = (
        *FamilyConfig.required,
        "moe_intermediate_size",
        "num_experts",
        "num_experts_per_tok",
        "num_shared_experts",
        "n_group",
        "topk_group",
        "routed_scaling_factor",
        "first_k_dense_replace",
        "partial_rotary_factor",
    )
    supported: ClassVar[Mapping[str, Any]] = {
        **FamilyConfig.supported,
        "use_qk_norm": True,
        "use_qkv_bias": False,
        "use_bias": False,
        "use_rmsnorm": True,
        "norm_head": False,
        "using_split_qkv_in_self_attention": False,
    }
    attribute_map = {
        "num_local_experts": "num_experts",
        "n_shared_experts": "num_shared_experts",
        "attention_bias": "use_qkv_bias",
    }

    vocab_size: int = 157184
    hidden_size: int = 2048
    intermediate_size: int = 5120
    moe_intermediate_size: int = 512
    num_hidden_layers: int = 20
    num_attention_heads: int = 16
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    partial_rotary_factor: float = 0.5
    attention_dropout: float = 0.0
    num_experts: int = 256
    num_experts_per_tok: int = 8
    num_shared_experts: int = 1
    n_group: int = 8
    topk_group: int = 4
    routed_scaling_factor: float = 2.5
    first_k_dense_replace: int = 1
    norm_topk_prob: bool | None = None  # published, but the published code does not read it
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        self.head_dim = self.head_dim or self.hidden_size // self.num_attention_heads
        super().__post_init__(**kwargs)
        for field, least in _INTEGERS.items():
            value = getattr(self, field)
            if type(value) is not int or value < least:
                raise UserError(
                    f"llada2_moe config field {field} is {shown(value)}, but takes an integer "
                    f"from {least}"
                )
        rotated = self.partial_rotary_factor
        if type(rotated) not in (int, float) or not 0 < rotated <= 1:
            raise UserError(
                f"llada2_moe config field partial_rotary_factor is {shown(rotated)}, but takes a "
                "number above 0 and up to 1"
            )
        groups, chosen = self.n_group, self.topk_group
        if chosen > groups or self.num_experts % groups or self.num_experts < 2 * groups:
            raise UserError(
                f"llada2_moe config fields n_group and topk_group are {groups} and {chosen}; they "
                f"take a share of the {self.num_experts} experts in groups of at least two, and "
                "how many of the groups are chosen"
            )
        check_choice(self, self.num_experts // groups * chosen)

    def mlp_widths(self) -> list[int]:
        dense = min(self.first_k_dense_replace, self.num_hidden_layers)
        experts = (self.num_experts + self.num_shared_experts) * self.moe_intermediate_size
        return [self.intermediate_size] * dense + [experts] * (self.num_hidden_layers - dense)


register_family(
    Family(
        config=LLaDA2MoEConfig,
        layers="rho_eos.models.layers.llada2_moe:LLaDA2MoEForMaskedLM",
        mask_names=("<|mask|>",),
        eos_names=("<|endoftext|>",),
        end_of_turn_names=("<|role_end|>",),
        blocks=Blocks(32),
        decoding={"threshold": 0.95},
        # Its quality mode; the config is that of 2.0.
        decoding_named={
            "llada2.1": {"commit": "editing", "threshold": 0.7, "editing_threshold": 0.5}
        },
    )
)
