"""Text in which nothing is special: what a user writes can become any token but an added one.

A tokenizer cuts its added tokens out of a text before anything else, whether or not they are marked
as special (LLaDA lists neither `<|mdm_mask|>` nor `<|eot_id|>` as such). In a user's text that
would let anyone open a turn, end one, or put MASKs into a prompt. Asking the tokenizer to split
special tokens does not help with those that are not marked, so user text goes through the same
normalizer, pre-tokenizer and model without the added tokens.
"""

import re
from collections.abc import Iterable
from typing import Any

from tokenizers import Encoding, Tokenizer

from rho_eos.base.errors import UserError


def encode_as_text(tokenizer: Any, text: str, add_special_tokens: bool = False) -> list[int]:
    """The ids of a user's text, with what the tokenizer puts around a text if asked for."""
    added = tokenizer.added_tokens_decoder
    plain = _without_added_tokens(tokenizer.backend_tokenizer)
    encoding = _encode(plain, text)
    if not added.keys().isdisjoint(encoding.ids):
        # The model has some of them in its own vocabulary and may find one that is whole.
        parts = _broken_up(text, (token.content for token in added.values()))
        encoding = Encoding.merge([_encode(plain, part) for part in parts])
    for token in encoding.ids:
        if token in added:
            raise UserError(
                f"the text holds {added[token].content!r}, which this model's tokenizer has no "
                "other way to write than as a token with a meaning of its own"
            )
    if add_special_tokens:
        encoding = plain.post_process(encoding)
    return list(encoding.ids)


def encode_with_added(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text in which added tokens are what they mean."""
    return list(_encode(tokenizer.backend_tokenizer, text).ids)


def is_whole(text: str) -> bool:
    """JSON can spell half a character (an unpaired surrogate), which nobody can write down."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def holds_added_token(tokenizer: Any, text: str) -> bool:
    return any(token.content in text for token in tokenizer.added_tokens_decoder.values())


def added_among(tokenizer: Any, ids: Iterable[int]) -> list[int]:
    """Those of the ids that are added tokens, in order."""
    added = tokenizer.added_tokens_decoder
    return [token for token in ids if token in added]


def split_at_added(tokenizer: Any, text: str) -> list[str | int]:
    """The text as the tokenizer cuts it: added tokens as ids, and what stands between them."""
    tokens = {token.content: (id, token) for id, token in tokenizer.added_tokens_decoder.items()}
    if not tokens:
        return [text]
    longest_first = sorted(tokens, key=len, reverse=True)
    any_of_them = "|".join(
        (r"\s*" if tokens[content][1].lstrip else "")
        + f"(?:{re.escape(content)})"
        + (r"\s*" if tokens[content][1].rstrip else "")
        for content in longest_first
    )
    pieces = re.split(f"({any_of_them})", text)
    return [
        tokens[piece if piece in tokens else piece.strip()][0] if index % 2 else piece
        for index, piece in enumerate(pieces)
    ]


def _encode(tokenizer: Tokenizer, text: str) -> Encoding:
    """A batch of one: unlike a single text it leaves Python's lock to other threads meanwhile."""
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    return encoding


def _without_added_tokens(full: Tokenizer) -> Tokenizer:
    """The same parts, shared and not copied: this takes microseconds, whatever the vocabulary."""
    plain = Tokenizer(full.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if getattr(full, part) is not None:
            setattr(plain, part, getattr(full, part))
    return plain


def _broken_up(text: str, contents: Iterable[str]) -> list[str]:
    """Parts of the text, none of which holds one of the contents whole."""
    start = "|".join(re.escape(content) for content in contents if len(content) > 1)
    cuts = [found.start() + 1 for found in re.finditer(f"(?={start})", text)] if start else []
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
