"""Log-probabilities in OpenAI's two forms, one for chats and one for completions.

Both give the text of each token. Joined, these are the whole text: a token that holds only a part
of a character has the text "", and the token that completes the character has all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rho_eos.base.outputs import TokenLogprob
from rho_eos.engine.request import Detokenize


@dataclass(frozen=True, slots=True)
class Told:
    """One token of a text, and what else might have stood there."""

    text: str
    offset: int  # in the text
    logprob: float
    top: tuple[tuple[str, float], ...]


class Teller:
    """Finds the text of each token while their text grows. `take` hands out each token once."""

    def __init__(self, detokenize: Detokenize) -> None:
        self._detokenize = detokenize
        self._ids: list[int] = []
        # Ids are read from `_window` on; the text of those before `_known` was told already.
        self._window, self._known = 0, 0
        self._offset = 0
        self._waiting: list[Told] = []

    def take(self, tokens: Sequence[TokenLogprob], length: int, final: bool = False) -> list[Told]:
        """The new tokens that begin in the first `length` characters.

        Args:
            tokens: All tokens so far, those of earlier calls among them.
            length: How many characters of the text are final.
            final: No more tokens will follow.
        """
        for number, token in enumerate(tokens[len(self._ids) :], start=len(self._ids) + 1):
            text = self._text_of(token.token, last=final and number == len(tokens))
            top = tuple(
                (text if other == token.token else self._detokenize([other]), logprob)
                for other, logprob in token.top
            )
            self._waiting.append(Told(text, self._offset, token.logprob, top))
            self._offset += len(text)
        taken = [told for told in self._waiting if told.offset < length]
        self._waiting = self._waiting[len(taken) :]
        return taken

    def _text_of(self, token: int, last: bool) -> str:
        """What a token adds to the text. It is read with the few tokens before it, because a
        tokenizer may treat the first token of a text in its own way."""
        self._ids.append(token)
        before = self._detokenize(self._ids[self._window : self._known])
        now = self._detokenize(self._ids[self._window :])
        if now.endswith("\ufffd") and not last:
            return ""
        self._window, self._known = self._known, len(self._ids)
        return now[len(before) :]


def for_chat(tokens: Sequence[Told]) -> dict[str, Any]:
    def entry(text: str, logprob: float) -> dict[str, Any]:
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    content = [
        entry(told.text, told.logprob) | {"top_logprobs": [entry(*other) for other in told.top]}
        for told in tokens
    ]
    return {"content": content, "refusal": None}


def for_completion(tokens: Sequence[Told]) -> dict[str, Any]:
    # Of several tokens that look alike the first is the likeliest, so it is the one that stays.
    top = [dict(reversed(told.top)) for told in tokens]
    return {
        "tokens": [told.text for told in tokens],
        "token_logprobs": [told.logprob for told in tokens],
        "top_logprobs": top if any(top) else None,
        "text_offset": [told.offset for told in tokens],
    }
