"""A2D (dllm-hub): Qwen2 and Qwen3 turned into masked diffusion models; bidirectional, no shift."""

from transformers import Qwen2Config, Qwen3Config

from rho_eos.models.family import Family, FamilyConfig, register_family


class A2DQwen2Config(FamilyConfig, Qwen2Config):
    model_type = "a2d-qwen2"
    architecture = "A2DQwen2LMHeadModel"


class A2DQwen3Config(FamilyConfig, Qwen3Config):
    model_type = "a2d-qwen3"
    architecture = "A2DQwen3LMHeadModel"


for config, layers in ((A2DQwen2Config, "Qwen2"), (A2DQwen3Config, "Qwen3")):
    register_family(
        Family(config, layers, mask_names=("<|mask|>",), end_of_turn_names=("<|im_end|>",))
    )
