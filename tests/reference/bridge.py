"""From the package's terms to the reference decoder's: parameters, ids, a model as a callable."""

from typing import Any

import torch

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from tests.reference.decoder import Ids, Logits, Rule
from tests.reference.random_llada import END_OF_TURN, EOS, MASK

SPECIAL = SpecialTokens(mask=MASK, eos=EOS, end_of_turn=END_OF_TURN)
IDS = Ids(mask=MASK, eos=EOS, ends=(EOS, END_OF_TURN))


def rule_of(params: DecodeParams, early_stop: bool | None = None, expand: int = -1) -> Rule:
    """The same rule in the method's letters; `early_stop`, where given, takes precedence."""
    low, high = params.region or (0.0, 1.0)
    own = params.model_dump()
    return Rule(
        policy=params.policy,
        low=low,
        high=high,
        signal="confidence" if params.policy == "released" else own.get("signal", "density"),
        initial_length=params.initial_length,
        max_length=params.max_new_tokens,
        threshold=own.get("threshold", 0.9),
        steps=own.get("steps"),
        block=own.get("block_length"),
        expansion=own.get("expansion", "constant"),
        base=own.get("expansion_base", 8),
        interval=own.get("expansion_interval", 0.1),
        cap=own.get("expansion_cap", 8),
        horizon=own.get("horizon", 0),
        spare_content=own.get("spare_content", False),
        tie=own.get("tie", 0.0),
        look=own.get("look", 0),
        ahead=own.get("ahead", 0),
        margin=own.get("margin", 0),
        trust=own.get("trust", 0.0),
        early_stop=params.early_stop if early_stop is None else early_stop,
        commit=params.commit,
        commit_order=own.get("order", "confidence"),
        steps_per_block=own.get("steps_per_block"),
        factor=own.get("factor", 1.0),
        gamma=own.get("gamma", 0.1),
        stability=own.get("stability", 0.01),
        stable_steps=own.get("stable_steps", 2),
        draft=own.get("draft", 0.6),
        verify=own.get("verify", 0.9),
        order=own.get("order", "entropy"),
        budget=own.get("expansions") or 0,
        most_steps=own.get("steps") or 0,
        evidence=own.get("evidence", "confidence"),
        behind=own.get("behind", 16),
        patience=own.get("patience", 4),
        stride=own.get("stride", 1),
        expand=expand,
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
