"""A2D-Qwen2 (dllm-hub): Qwen2 turned into a masked diffusion model; bidirectional, no shift."""

from transformers import Qwen2Config

from rho_eos.models.family import Family, FamilyConfig, register_family


class A2DQwen2Config(FamilyConfig, Qwen2Config):
    model_type = "a2d-qwen2"
    architecture = "A2DQwen2LMHeadModel"


register_family(
    Family(
        config=A2DQwen2Config,
        layers="Qwen2",
        mask_names=("<|mask|>",),
        end_of_turn_names=("<|im_end|>",),
    )
)
