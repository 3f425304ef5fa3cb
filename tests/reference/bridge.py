"""From the package's terms to the reference decoder's: parameters, ids, a model as a callable."""

from dataclasses import fields
from typing import Any

import torch

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from tests.reference.decoder import Ids, Logits, Rule
from tests.reference.random_llada import END_OF_TURN, EOS, MASK

SPECIAL = SpecialTokens(mask=MASK, eos=EOS, end_of_turn=END_OF_TURN)
IDS = Ids(mask=MASK, eos=EOS, ends=(EOS, END_OF_TURN))


#: The orders of DreamOn's published code, in ours.
PUBLISHED = {"maskgit_plus": "confidence", "topk_margin": "margin"}


def rule_of(params: DecodeParams, early_stop: bool | None = None, expand: int = -1) -> Rule:
    """The same rule for the reference; `early_stop`, where given, takes precedence."""
    names = {each.name for each in fields(Rule)}
    own = {name: value for name, value in params.model_dump().items() if name in names}
    own["low"], own["high"] = params.region or (0.0, 1.0)
    if "order" in own:
        own["order"] = PUBLISHED.get(own["order"], own["order"])
    if own.get("expansions", 0) is None:
        own["expansions"] = params.max_new_tokens
    if early_stop is not None:
        own["early_stop"] = early_stop
    return Rule(**own, expand=expand)


def logits_of(model: Any, shift: int = 0) -> Logits:
    """The model's forward; with a shift, the logits for position i are those it gives at i - 1."""

    def logits(
        input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor
    ) -> torch.Tensor:
        raw: torch.Tensor = model(
            input_ids, attention_mask=attention_mask, position_ids=position_ids
        ).logits
        return raw.roll(shift, dims=1) if shift else raw

    return logits


def guided(logits: Logits, prompt: int, suffix: int, scale: float) -> Logits:
    """With classifier-free guidance, for one row: against the same canvas between MASKs."""

    def extrapolated(
        ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        hidden = ids.clone()
        hidden[:, :prompt] = hidden[:, ids.shape[1] - suffix :] = MASK
        own, without = logits(ids, mask, positions), logits(hidden, mask, positions)
        return without + (scale + 1) * (own - without)

    return extrapolated
