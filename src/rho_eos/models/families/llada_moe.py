"""LLaDA-MoE: LLaDA with experts, on the layers of transformers' Qwen3-MoE without the causal mask.

It shares LLaDA's model_type, but neither its config fields nor its weight names.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from rho_eos.base.errors import UserError
from rho_eos.models.family import Family, FamilyConfig, check_choice, register_family


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
    supported: ClassVar[Mapping[str, Any]] = {
        "moe_router_score_function": "softmax",
        "partial_rotary_factor": 1,
        "routed_scaling_factor": 1,
        "router_num_group": None,
        "router_topk_group": None,
        "shared_expert_intermediate_size": None,
        "clip_qkv": None,
    }
    attribute_map = {
        "intermediate_size": "dense_intermediate_size",
        "moe_intermediate_size": "expert_intermediate_size",
    }

    vocab_size: int = 157184
    hidden_size: int = 2048
    dense_intermediate_size: int | None = 8192
    expert_intermediate_size: int = 1024
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
    qk_layernorm: bool = True
    num_experts: int = 64
    num_experts_per_tok: int = 8
    #: Published, but the published code does not read it: weights are never made to sum to one.
    norm_topk_prob: bool | None = None
    moe_layer_freq: list[int] | None = None  # 1: experts, 0: one dense MLP
    moe_router_enable_expert_bias: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        layers = self.num_hidden_layers
        self.moe_layer_freq = [1] * layers if self.moe_layer_freq is None else self.moe_layer_freq
        good = isinstance(self.moe_layer_freq, list) and set(self.moe_layer_freq) <= {0, 1}
        if not good or len(self.moe_layer_freq) != layers:
            raise UserError(
                f"llada-moe config field moe_layer_freq is {self.moe_layer_freq!r}; it takes a 0 "
                f"or 1 for each of the {layers} layers"
            )
        check_choice(self, self.num_experts)
        super().__post_init__(**kwargs)

    @property
    def mlp_only_layers(self) -> list[int]:
        """What Qwen3-MoE calls the layers without experts."""
        return [index for index, sparse in enumerate(self.moe_layer_freq or ()) if not sparse]

    @property
    def decoder_sparse_step(self) -> int:
        return 1

    def mlp_widths(self) -> list[int]:
        dense, experts = self.dense_intermediate_size, self.num_experts
        widths = (dense or 0, experts * self.expert_intermediate_size)
        return [widths[sparse] for sparse in self.moe_layer_freq or ()]

    def to_dict(self) -> dict[str, Any]:
        """Only published fields under the published type, so that the family's code reads it."""
        fields = super().to_dict()
        rope = dict(fields.pop("rope_parameters", None) or {})
        theta, kind = rope.pop("rope_theta", None), rope.get("rope_type", "default")
        scaling = None if kind == "default" else rope
        return fields | {"model_type": "llada", "rope_theta": theta, "rope_scaling": scaling}


def has_experts(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") in ("llada", "llada-moe") and bool(config.get("num_experts"))


register_family(
    Family(
        config=LLaDAMoEConfig,
        layers="rho_eos.models.layers.llada_moe:LLaDAMoEForMaskedLM",
        matches=has_experts,
        mask_names=("<|mask|>",),
        end_of_turn_names=("<|role_end|>",),
    )
)
