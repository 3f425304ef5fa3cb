"""MASK, EOS, end-of-turn and EXPAND ids: from the user, else the config, else the tokenizer.

Nothing is taken for granted about a family: an id that stands nowhere is asked for.
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
    mask = _first(
        config.mask_token_id,
        getattr(model_config, "mask_token_id", None),
        getattr(tokenizer, "mask_token_id", None),
        _named(tokenizer, family.mask_names),
    )
    eos = _first(
        config.eos_token_id,
        getattr(model_config, "eos_token_id", None),
        getattr(tokenizer, "eos_token_id", None),
    )
    for name, value in (("mask_token_id", mask), ("eos_token_id", eos)):
        if value is None:
            raise UserError(f"neither config nor tokenizer has a {name}; give one as {name}")
        _check_id(name, value, model_config.vocab_size)
    assert mask is not None and eos is not None
    if mask == eos:
        raise UserError(f"mask_token_id and eos_token_id are both {mask}, but must differ")
    end_of_turn = _first(
        config.end_of_turn_id,
        _named(tokenizer, (*family.end_of_turn_names, *END_OF_TURN_NAMES)),
    )
    if end_of_turn is not None:
        _check_id("end_of_turn_id", end_of_turn, model_config.vocab_size)
    expand = _first(getattr(model_config, "expand_token_id", None), _named(tokenizer, EXPAND_NAMES))
    if expand is not None:
        _check_id("expand_token_id", expand, model_config.vocab_size)
    return SpecialTokens(mask, eos, end_of_turn, expand)


def _check_id(name: str, value: Any, vocabulary: int) -> None:
    if type(value) is not int or not 0 <= value < vocabulary:
        raise UserError(
            f"{name} is {shown(value)}, but takes an id below {vocabulary}, "
            "the size of the model's vocabulary"
        )


def _first(*candidates: int | list[int] | None) -> int | None:
    for candidate in candidates:
        if isinstance(candidate, list):
            candidate = candidate[0] if candidate else None
        if candidate is not None:
            return candidate
    return None


def _named(tokenizer: Any, names: tuple[str, ...]) -> int | None:
    """The id of the first of these tokens that the tokenizer has."""
    vocabulary = tokenizer.get_vocab() if tokenizer is not None else {}
    return next((vocabulary[name] for name in names if name in vocabulary), None)
