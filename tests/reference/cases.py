"""Random models and prompts on which the engine is compared with the naive decoder."""

import numpy as np

LIMITS = {"initial_length": 16, "max_new_tokens": 48, "block_length": 12}
MODELS = {
    "mostly text, unsure": {"seed": 1, "eos_share": 0.1, "sharpness": 0.6},
    "balanced": {"seed": 2, "eos_share": 0.4, "sharpness": 4.0},
    "mostly EOS, grouped queries": {"seed": 3, "eos_share": 0.8, "sharpness": 3.0, "kv_heads": 2},
}


def some_prompts(count: int, seed: int = 0, vocabulary: int = 40) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [random.integers(4, vocabulary, random.integers(1, 24)).tolist() for _ in range(count)]
