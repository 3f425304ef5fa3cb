"""Random LLaDA-shaped models that behave like trained ones as far as decoding is concerned.

A freshly initialised transformer is of no use here: it predicts nearly the same nearly uniform
distribution everywhere, never EOS, so every canvas would be filled one position at a time and grow
to its limit. Three changes give a model that commits several tokens a step, and whose canvases grow
and shrink:

- query and key weights are large, positions turn fast (a small RoPE base) and embeddings are small,
  so that two MASKs, equal but for their place, still get different predictions;
- the vocabulary projection is scaled (`sharpness`), so that some positions are sure and some not;
- hidden dimension 0 is constant and is read by EOS alone: a bias, set so that a chosen share of an
  all-MASK canvas predicts EOS.
"""

import torch

from rho_eos.models.families.llada import LLaDAConfig
from rho_eos.models.layers.llada import LLaDAForMaskedLM

MASK, EOS, END_OF_TURN = 3, 2, 1


def random_llada(
    seed: int = 0,
    vocabulary: int = 40,
    width: int = 32,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int | None = None,
    sharpness: float = 2.0,
    eos_share: float = 0.5,
    context: int = 2048,
) -> LLaDAForMaskedLM:
    config = LLaDAConfig(
        d_model=width,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=kv_heads or heads,
        mlp_hidden_size=3 * width,
        vocab_size=vocabulary,
        max_sequence_length=context,
        rope_theta=100.0,
        mask_token_id=MASK,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )
    model = LLaDAForMaskedLM(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                gain = 4.0 if "q_proj" in name or "k_proj" in name else 1.0
                std = 0.3 if "embed" in name else gain / weight.shape[1] ** 0.5
                weight.normal_(0.0, std, generator=generator)
        _pull_towards_eos(model, sharpness, eos_share, generator)
    return model


def _pull_towards_eos(
    model: LLaDAForMaskedLM, sharpness: float, share: float, generator: torch.Generator
) -> None:
    """Make dimension 0 constant, give it to EOS, and weigh it so that `share` of MASKs say EOS."""
    for name, weight in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight[0] = 0.0  # no layer writes to dimension 0
    model.model.embed_tokens.weight[:, 0] = 1.0
    model.lm_head.weight *= sharpness
    model.lm_head.weight[:, 0] = 0.0
    prompt = torch.randint(4, model.config.vocab_size, (16,), generator=generator)
    canvas = torch.cat([prompt, torch.full((64,), MASK)])
    hidden = model.model(canvas[None]).last_hidden_state[0, len(prompt) :]
    logits = model.lm_head(hidden)
    own = logits[:, EOS].clone()
    logits[:, [EOS, MASK]] = -torch.inf
    # The bias with which EOS just wins, position by position.
    needed = (logits.amax(-1) - own) / hidden[:, 0]
    model.lm_head.weight[EOS, 0] = needed.quantile(share)
