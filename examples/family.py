"""A family of models from outside: a bidirectional Qwen2 with shifted predictions (Open-dCoder).

Open-dCoder-0.5B is an ordinary Qwen2 checkpoint: the same config fields, the same weight names. It
was trained without the causal mask on masked text, and kept the offset of the autoregressive model
it began as: the logits at position i - 1 predict the token at position i.

    rho-eos generate "def add(a, b):" --model fredzzp/open-dcoder-0.5B --plugin examples/family.py
"""

from collections.abc import Mapping
from typing import Any

from transformers import Qwen2Config

from rho_eos import Family, FamilyConfig, register_family


class OpenDCoderConfig(FamilyConfig, Qwen2Config):
    model_type = "open-dcoder"
    architecture = "Qwen2ForCausalLM"


def has_a_mask(config: Mapping[str, Any]) -> bool:
    """Its config says qwen2, as those of models that write from left to right do."""
    return config.get("model_type") in ("qwen2", "open-dcoder") and "mask_token_id" in config


register_family(
    Family(
        config=OpenDCoderConfig,
        layers="Qwen2",
        matches=has_a_mask,
        prediction_shift=1,
        mask_names=("[MASK]", "<M>"),
        end_of_turn_names=("<|im_end|>",),
    )
)
