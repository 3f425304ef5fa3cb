"""A2D-Qwen3 (dllm-hub): Qwen3 turned into a masked diffusion model; bidirectional, no shift."""

from transformers import Qwen3Config

from rho_eos.models.family import Family, FamilyConfig, register_family


class A2DQwen3Config(FamilyConfig, Qwen3Config):
    model_type = "a2d-qwen3"
    architecture = "A2DQwen3LMHeadModel"


register_family(
    Family(
        config=A2DQwen3Config,
        layers="Qwen3",
        mask_names=("<|mask|>",),
        end_of_turn_names=("<|im_end|>",),
    )
)
