"""MASK, EOS, end-of-turn and EXPAND ids: from the user, else the config, else the tokenizer.

No id has a default: where none of the three gives MASK or EOS, the user is asked for it.
"""

from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.settings import shown
from rho_eos.base.tokens import SpecialTokens
from rho_eos.config import EngineConfig
from rho_eos.models.family import Family

#: Names of the end-of-turn token in the chat formats we know, tried after the family's own.
END_OF_TURN_NAMES = ("<|eot_id|>", "<|im_end|>", "<|role_end|>")
EXPAND_NAMES = ("<|expand|>",)


def find_special_tokens(
    config: EngineConfig, family: Family, model_config: Any, tokenizer: Any
) -> SpecialTokens:
    """Raise when MASK or EOS is nowhere to be found: decoding cannot start without them."""
    vocabulary = tokenizer.get_vocab() if tokenizer is not None else {}

    def named(names: tuple[str, ...]) -> int | None:
        return next((vocabulary[name] for name in names if name in vocabulary), None)

    def stated(name: str) -> tuple[Any, ...]:
        return tuple(getattr(source, name, None) for source in (config, model_config, tokenizer))

    found = {
        "mask_token_id": _first(*stated("mask_token_id"), named(family.mask_names)),
        "eos_token_id": _first(*stated("eos_token_id")),
        "end_of_turn_id": _first(
            config.end_of_turn_id, named((*family.end_of_turn_names, *END_OF_TURN_NAMES))
        ),
        "expand_token_id": _first(model_config.expand_token_id, named(EXPAND_NAMES)),
    }
    for name, value in found.items():
        if value is None and name in ("mask_token_id", "eos_token_id"):
            raise UserError(f"neither config nor tokenizer has a {name}; give one as {name}")
        if value is not None and (
            type(value) is not int or not 0 <= value < model_config.vocab_size
        ):
            raise UserError(
                f"{name} is {shown(value)}, but takes an id below {model_config.vocab_size}, "
                "the size of the model's vocabulary"
            )
    mask, eos, end_of_turn, expand = found.values()
    assert mask is not None and eos is not None
    if mask == eos:
        raise UserError(f"mask_token_id and eos_token_id are both {mask}, but must differ")
    return SpecialTokens(mask, eos, end_of_turn, expand)


def _first(*candidates: int | list[int] | None) -> int | None:
    for candidate in candidates:
        if isinstance(candidate, list):
            candidate = candidate[0] if candidate else None
        if candidate is not None:
            return candidate
    return None
