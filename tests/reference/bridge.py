"""From the package's terms to the reference decoder's: parameters, ids, a model as a callable."""

from typing import Any

import torch

from rho_eos.config import DecodeParams
from rho_eos.decoding.policy import SpecialTokens
from tests.reference.decoder import Ids, Logits, Rule
from tests.reference.random_llada import END_OF_TURN, EOS, MASK

SPECIAL = SpecialTokens(mask=MASK, eos=EOS, end_of_turn=END_OF_TURN)
IDS = Ids(mask=MASK, eos=EOS, ends=(EOS, END_OF_TURN))


def rule_of(params: DecodeParams, early_stop: bool | None = None) -> Rule:
    """The same rule in the method's letters; `early_stop`, where given, takes precedence."""
    low, high = params.region
    return Rule(
        policy=params.policy,
        low=low,
        high=high,
        signal=params.resolved_signal,
        initial_length=params.initial_length,
        max_length=params.max_new_tokens,
        threshold=params.threshold,
        steps=params.steps,
        block=params.block_length,
        expansion=params.expansion,
        base=params.expansion_base,
        interval=params.expansion_interval,
        cap=params.expansion_cap,
        horizon=params.horizon,
        spare_content=params.spare_content,
        early_stop=params.early_stop if early_stop is None else early_stop,
    )


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
