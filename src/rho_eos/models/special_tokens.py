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
    """Find the special ids. Without MASK and EOS decoding cannot start, so that is an error."""
    vocabulary = tokenizer.get_vocab() if tokenizer is not None else {}
    end_names = (*family.end_of_turn_names, *END_OF_TURN_NAMES)

    def find(name: str, named: tuple[str, ...] = (), needed: bool = True) -> list[int]:
        """The id, or ids, that the first source gives which has any."""
        ours = (getattr(config, name, None), getattr(model_config, name, None))
        in_vocabulary = (vocabulary.get(each) for each in named)
        # A family knows its names better than a tokenizer's settings, which may be another model's.
        for value in (*ours, *in_vocabulary, getattr(tokenizer, name, None)):
            given: list[Any] = value if isinstance(value, list) else [value]
            ids = [id for id in given if id is not None]
            for id in ids:
                if type(id) is not int or not 0 <= id < model_config.vocab_size:
                    raise UserError(
                        f"{name} is {shown(id)}, but takes an id below {model_config.vocab_size}, "
                        "the size of the model's vocabulary"
                    )
            if ids:
                return ids
        if needed:
            raise UserError(f"neither config nor tokenizer has a {name}; give one as {name}")
        return []

    mask = find("mask_token_id", family.mask_names)[0]
    ends = find("eos_token_id", family.eos_names)  # a list may hold the end of a turn, too
    end_of_turn = next(iter(find("end_of_turn_id", end_names, needed=False) or ends[1:]), None)
    eos = next((id for id in ends if id != end_of_turn), ends[0])
    if mask == eos:
        raise UserError(f"mask_token_id and eos_token_id are both {mask}, but must differ")
    expand = next(iter(find("expand_token_id", EXPAND_NAMES, needed=False)), None)
    return SpecialTokens(mask, eos, end_of_turn, expand)
