"""iLLaDA: Llama's layers and weight names without the causal mask; grouped-query attention.

Its published config has no MASK id and its tokenizer need not declare one, so the id is looked for
under the names its authors use, and asked for where there is none.
"""

from typing import Any

from transformers import PreTrainedConfig

from rho_eos.models.family import Family, FamilyConfig, register_family


class ILLaDAConfig(FamilyConfig, PreTrainedConfig):
    """Llama's fields. Llama's own class imports modelling code, which takes a second."""

    model_type = "illada"
    architecture = "ILLaDAForCausalLM"
    supported = {"layer_norm_eps": None}  # a number asks for LayerNorm in place of RMSNorm

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    layer_norm_eps: float | None = None
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    mlp_bias: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.head_dim = self.head_dim or self.hidden_size // self.num_attention_heads
        self.num_key_value_heads = self.num_key_value_heads or self.num_attention_heads
        super().__post_init__(**kwargs)


register_family(
    Family(
        config=ILLaDAConfig,
        layers="Llama",
        mask_names=("<[MASK]>", "<|mdm_mask|>", "<|mask|>"),
        end_of_turn_names=("<|eot_id|>", "<|role_end|>", "<|im_end|>"),
    )
)
