"""Text in which nothing is special: what a user writes can become any token but an added one.

A tokenizer cuts its added tokens out of a text before anything else, whether or not they are marked
as special (LLaDA lists neither `<|mdm_mask|>` nor `<|eot_id|>` as such). In a user's text that
would let anyone open a turn, end one, or put MASKs into a prompt. Asking the tokenizer to split
special tokens does not help with those that are not marked, so user text goes through the same
normalizer, pre-tokenizer and model without the added tokens.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tokenizers import Encoding, Tokenizer

from rho_eos.base.errors import TokenizerError, UserError, first_line


@contextmanager
def tokenizing() -> Iterator[None]:
    """Whatever a tokenizer is asked for. A panic of its library is no `Exception`: nobody between
    here and the end of the process would take it for an error of this text alone."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"the model's tokenizer failed: {first_line(error)}") from error


def is_whole(text: str) -> bool:
    """Whether no character of a text is only a half (an unpaired surrogate), as JSON can spell."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class TextEncoder:
    """Token ids of texts. It is set up once and never changed, so threads can share it.

    Args:
        tokenizer: A checkpoint's, from transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.added: dict[int, Any] = tokenizer.added_tokens_decoder
        self._full: Tokenizer = tokenizer.backend_tokenizer
        self._full.no_truncation()
        self._full.no_padding()
        self._full.encode_special_tokens = False
        #: The same parts, shared and not copied, without the added tokens.
        self._plain = Tokenizer(self._full.model)
        for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
            if getattr(self._full, part) is not None:
                setattr(self._plain, part, getattr(self._full, part))

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The ids of a user's text, with what the tokenizer puts around a text if asked for."""
        encoding = _encode(self._plain, text)
        if not self.added.keys().isdisjoint(encoding.ids):
            # The model has some of them in its own vocabulary and may find one that is whole.
            parts = self._broken_up(text)
            encoding = Encoding.merge([_encode(self._plain, part) for part in parts])
        for token in self.added_among(encoding.ids):
            raise UserError(
                f"the text holds {self.added[token].content!r}, which this model's tokenizer has "
                "no other way to write than as a token with a meaning of its own"
            )
        return list((self._plain.post_process(encoding) if add_special_tokens else encoding).ids)

    def parse(self, text: str) -> list[int]:
        """The ids of a text in which added tokens are what they mean."""
        return list(_encode(self._full, text).ids)

    def added_among(self, ids: Iterable[int]) -> list[int]:
        """Those of the ids that are added tokens, in order."""
        return [token for token in ids if token in self.added]

    def holds_added(self, text: str) -> bool:
        return any(token.content in text for token in self.added.values())

    def split_at_added(self, text: str) -> list[str | int]:
        """The text as the tokenizer cuts it: added tokens as ids, and what stands between them."""
        with tokenizing():
            [encoding] = self._full.encode_batch([text], add_special_tokens=False)  # with offsets
        pieces: list[str | int] = []
        begin = 0
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token in self.added:
                before, behind = text[begin:start], text[end:]
                pieces += [before.rstrip() if self.added[token].lstrip else before, token]
                kept = behind.lstrip() if self.added[token].rstrip else behind
                begin = len(text) - len(kept)
        return [*pieces, text[begin:]]

    def _broken_up(self, text: str) -> list[str]:
        """Parts of the text, none of which holds an added token whole."""
        contents = (token.content for token in self.added.values())
        start = "|".join(re.escape(content) for content in contents if len(content) > 1)
        cuts = [found.start() + 1 for found in re.finditer(f"(?={start})", text)] if start else []
        return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _encode(tokenizer: Tokenizer, text: str) -> Encoding:
    """A batch of one: unlike a single text it leaves Python's lock to other threads meanwhile."""
    with tokenizing():
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    return encoding
