"""Log-probabilities in the two forms of OpenAI's: what is told of each token of a text.

Tokens get texts here. Joined they are the text: a token that holds a part of a character only has
the text "", and the one that completes it the whole character.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rho_eos.base.outputs import Output, TokenLogprob

Detokenize = Callable[[list[int]], str]


@dataclass(frozen=True, slots=True)
class Told:
    """One token of a text, and what else might have stood there."""

    text: str
    offset: int  # in the text
    logprob: float
    top: tuple[tuple[str, float], ...]


class Telling:
    """The tokens of one text that grows. `take` hands out each of them once."""

    def __init__(self, detokenize: Detokenize) -> None:
        self._detokenize = detokenize
        self._ids: list[int] = []
        self._window, self._known = 0, 0  # what was read together, and up to where
        self._offset = 0
        self._waiting: list[Told] = []

    def take(self, tokens: Sequence[TokenLogprob], length: int, final: bool = False) -> list[Told]:
        """Of all `tokens` so far, the new ones that begin in the first `length` characters."""
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
        """What a token adds to the text. Read with the few before it: a tokenizer may treat the
        first token of a text in its own way."""
        self._ids.append(token)
        before = self._detokenize(self._ids[self._window : self._known])
        now = self._detokenize(self._ids[self._window :])
        if now.endswith("\ufffd") and not last:
            return ""
        self._window, self._known = self._known, len(self._ids)
        return now[len(before) :]


def tell(output: Output, detokenize: Detokenize) -> list[Told] | None:
    """All of a finished text, if it was asked for."""
    if output.logprobs is None:
        return None
    return Telling(detokenize).take(output.logprobs, len(output.text), final=True)


def for_chat(tokens: Sequence[Told]) -> dict[str, Any]:
    return {
        "content": [
            {
                **_entry(told.text, told.logprob),
                "top_logprobs": [_entry(text, logprob) for text, logprob in told.top],
            }
            for told in tokens
        ],
        "refusal": None,
    }


def for_completion(tokens: Sequence[Told]) -> dict[str, Any]:
    return {
        "tokens": [told.text for told in tokens],
        "token_logprobs": [told.logprob for told in tokens],
        # The first of several that look alike is the likeliest.
        "top_logprobs": [dict(reversed(told.top)) for told in tokens]
        if any(told.top for told in tokens)
        else None,
        "text_offset": [told.offset for told in tokens],
    }


def _entry(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
