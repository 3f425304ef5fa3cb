"""LLaDA's layers: Llama's, but queries and keys are rotated in float32 whatever the weights are.

transformers rounds cosines, sines and each product with them to the type of the hidden states; in
bfloat16 that keeps three digits. LLaDA's own code rotates in float32 where its config says so
(`rope_full_precision`, as all published ones do) and rounds once, behind the rotation.
"""

from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.core_model_loading import WeightRenaming

from rho_eos.models.backbone import BidirectionalStack, MaskedDiffusionHead
from rho_eos.models.families.llada import LLaDAConfig


class LLaDAModel(BidirectionalStack, LlamaModel):
    config_class = LLaDAConfig

    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__(config)
        self.rotates_in_float32 = config.rope_full_precision


def _block(ours: str, published: str) -> WeightRenaming:
    return WeightRenaming(rf"transformer\.blocks\.(\d+)\.{published}\.", rf"layers.\1.{ours}.")


class LLaDAForMaskedLM(MaskedDiffusionHead, LlamaPreTrainedModel):
    config_class = LLaDAConfig
    stack_class = LLaDAModel
    weights = (  # to the names in transformers' Llama
        _block("self_attn.q_proj", "q_proj"),
        _block("self_attn.k_proj", "k_proj"),
        _block("self_attn.v_proj", "v_proj"),
        _block("self_attn.o_proj", "attn_out"),
        _block("mlp.gate_proj", "ff_proj"),
        _block("mlp.up_proj", "up_proj"),
        _block("mlp.down_proj", "ff_out"),
        _block("input_layernorm", "attn_norm"),
        _block("post_attention_layernorm", "ff_norm"),
        WeightRenaming(r"^model\.transformer\.wte", r"model.embed_tokens"),
        WeightRenaming(r"^model\.transformer\.ln_f", r"model.norm"),
        WeightRenaming(r"^model\.transformer\.ff_out", r"lm_head"),
    )
