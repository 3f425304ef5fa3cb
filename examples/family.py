"""A family of models from outside: a bidirectional Qwen2 with shifted predictions (Open-dCoder).

Open-dCoder-0.5B has the config fields and the weight names of Qwen2. It was trained without the
causal mask on masked text, and kept the offset of the autoregressive model it began as: the logits
at position i - 1 predict the token at position i. Its config says qwen2, as those of models that
write from left to right do; they have no MASK, and are refused for that.

    rho-eos generate "def add(a, b):" --model fredzzp/open-dcoder-0.5B --plugin examples/family.py

This was compared with transformers' Qwen2 on random weights; the published ones were not tried.
"""

from transformers import Qwen2Config

from rho_eos import Family, FamilyConfig, register_family


class OpenDCoderConfig(FamilyConfig, Qwen2Config):
    model_type = "open-dcoder"
    architecture = "Qwen2ForCausalLM"


register_family(
    Family(
        config=OpenDCoderConfig,
        layers="Qwen2",
        matches=lambda config: config.get("model_type") in ("qwen2", "open-dcoder"),
        prediction_shift=1,
        mask_names=("[MASK]", "<M>"),
        end_of_turn_names=("<|im_end|>",),
    )
)
