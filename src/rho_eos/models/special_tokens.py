"""MASK, EOS, end-of-turn and EXPAND ids: from the user, else the config, else the tokenizer.

No id has a default: where none of the three gives MASK or EOS, the user is asked for it.
"""

from typing import Any

from rho_eos.base.errors import UserError, shown
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
    end_names = (*family.end_of_turn_names, *END_OF_TURN_NAMES)
    sources = (config, model_config, tokenizer)

    def find(name: str, named: tuple[str, ...] = (), needed: bool = True) -> Any:
        stated = (getattr(source, name, None) for source in sources)
        for value in (*stated, *(vocabulary.get(each) for each in named)):
            value = next(iter(value), None) if isinstance(value, list) else value
            if value is None:
                continue
            if type(value) is int and 0 <= value < model_config.vocab_size:
                return value
            raise UserError(
                f"{name} is {shown(value)}, but takes an id below {model_config.vocab_size}, "
                "the size of the model's vocabulary"
            )
        if needed:
            raise UserError(f"neither config nor tokenizer has a {name}; give one as {name}")
        return None

    mask = find("mask_token_id", family.mask_names)
    eos = find("eos_token_id")
    if mask == eos:
        raise UserError(f"mask_token_id and eos_token_id are both {mask}, but must differ")
    end_of_turn = find("end_of_turn_id", end_names, needed=False)
    return SpecialTokens(
        mask, eos, end_of_turn, find("expand_token_id", EXPAND_NAMES, needed=False)
    )
