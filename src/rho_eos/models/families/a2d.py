"""A2D (dllm-hub): Qwen2 and Qwen3 turned into masked diffusion models; bidirectional, no shift.

They are trained in two ways, and neither config nor weights tell which: as `mdlm` every position
sees every other, as `bd3lm` it sees its own block and those before it, counted from the end of the
prompt. The names of published models say it.
"""

from transformers import Qwen2Config, Qwen3Config

from rho_eos.decoding.blocks import Blocks
from rho_eos.models.family import Family, FamilyConfig, register_family


class A2DQwen2Config(FamilyConfig, Qwen2Config):
    model_type = "a2d-qwen2"
    architecture = "A2DQwen2LMHeadModel"
    block_fields = ("block_length", "block_size")


class A2DQwen3Config(FamilyConfig, Qwen3Config):
    model_type = "a2d-qwen3"
    architecture = "A2DQwen3LMHeadModel"
    block_fields = ("block_length", "block_size")


for config, layers in ((A2DQwen2Config, "Qwen2"), (A2DQwen3Config, "Qwen3")):
    register_family(
        Family(
            config,
            layers,
            mask_names=("<|mask|>",),
            end_of_turn_names=("<|im_end|>",),
            blocks=Blocks(32, alignment="prompt"),
            blocks_named="bd3lm",
            decoding={"commit": "quota", "spread": "even"},
            template={"enable_thinking": False},
        )
    )
