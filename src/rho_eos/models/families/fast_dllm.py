"""Fast-dLLM v2: Qwen2's layers with attention in blocks; logits at position i predict token i + 1.

The first token of a block is read from the forward over the finished block before it. The other
positions of a block are filled in smaller blocks, from left to right.
"""

from transformers import Qwen2Config

from rho_eos.decoding.blocks import Blocks
from rho_eos.models.family import Family, FamilyConfig, register_family


class FastDLLMConfig(FamilyConfig, Qwen2Config):
    model_type = "Fast_dLLM_Qwen"
    architecture = "Fast_dLLM_QwenForCausalLM"
    block_fields = ("bd_size",)


register_family(
    Family(
        config=FastDLLMConfig,
        layers="Qwen2",
        prediction_shift=1,  # it was initialised from an autoregressive model and kept its offset
        mask_names=("|<MASK>|",),
        end_of_turn_names=("<|im_end|>",),
        blocks=Blocks(32, opens_with_store=True),
        decoding={"threshold": 0.9, "sub_block_length": 8},
    )
)
