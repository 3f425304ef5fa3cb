"""LLaDA: Llama's layers without the causal mask, under LLaDA's own config fields and weight names.

Covers LLaDA-8B-Base/Instruct, LLaDA-1.5 and others of the same code (grouped-query attention, tied
embeddings, other vocabularies). The config keeps the published field names, so a saved checkpoint
is again one that the family's own code can read. LLaDA-MoE shares the model type but nothing else.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from rho_eos.base.errors import UserError
from rho_eos.models.family import Family, FamilyConfig, register_family


class LLaDAConfig(FamilyConfig, PreTrainedConfig):
    """LLaDA's published fields; `attribute_map` lets Llama's layers read them by their names."""

    model_type = "llada"
    architecture = "LLaDAModelLM"
    required = ("d_model", "n_layers", "n_heads", "vocab_size")
    block_fields = ("block_length",)  # published models see all positions and have no such field
    supported: ClassVar[Mapping[str, Any]] = {
        "block_type": "llama",
        "layer_norm_type": "rms",
        "activation_type": "silu",
        "rope": True,
        "alibi": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "bias_for_layer_norm": False,
        "attention_layer_norm": False,
        "input_emb_norm": False,
        "scale_logits": False,
        "clip_qkv": None,
    }
    attribute_map = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "num_key_value_heads": "n_kv_heads",
        "intermediate_size": "mlp_hidden_size",
        "max_position_embeddings": "max_sequence_length",
        "hidden_act": "activation_type",
        "attention_bias": "include_qkv_bias",
        "mlp_bias": "include_bias",
        "tie_word_embeddings": "weight_tying",
        "initializer_range": "init_std",
    }

    d_model: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    n_kv_heads: int | None = None
    mlp_hidden_size: int | None = None
    mlp_ratio: int = 4
    vocab_size: int = 126464
    embedding_size: int | None = None
    max_sequence_length: int = 4096
    rope_theta: float = 500000.0
    rms_norm_eps: float = 1e-5
    init_std: float = 0.02
    weight_tying: bool = False
    layer_norm_with_affine: bool = True
    rope_full_precision: bool = True
    attention_dropout: float = 0.0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    rope_parameters: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if kwargs.get("num_experts"):
            raise UserError("a LLaDA config with num_experts is a LLaDAMoEConfig")
        self.n_kv_heads = self.n_kv_heads or self.n_heads
        self.mlp_hidden_size = self.mlp_hidden_size or self.mlp_ratio * self.d_model
        # The published code sizes its embedding by embedding_size where that is given.
        self.vocab_size = self.embedding_size or self.vocab_size
        self.embedding_size = self.vocab_size
        self.head_dim = self.d_model // self.n_heads
        super().__post_init__(**kwargs)

    def to_dict(self) -> dict[str, Any]:
        """Only published fields, so that LLaDA's own code reads it."""
        fields = super().to_dict()
        for derived in ("rope_parameters", "head_dim"):
            fields.pop(derived, None)
        return fields


def without_experts(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == "llada" and not config.get("num_experts")


register_family(
    Family(
        config=LLaDAConfig,
        layers="rho_eos.models.layers.llada:LLaDAForMaskedLM",
        matches=without_experts,
        mask_names=("<|mdm_mask|>",),
        end_of_turn_names=("<|eot_id|>",),
    )
)
