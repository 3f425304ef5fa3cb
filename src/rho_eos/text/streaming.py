"""Committed text is a stream: committed tokens never change, so the finished prefix can be sent."""

from collections.abc import Sequence


class TextDelta:
    """Cuts a growing text into deltas, holding back what may still change its meaning.

    That is a character whose bytes are not all there yet, and the beginning of a stop string.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.beginnings = [Beginning(each) for each in stop]
        self.sent = 0

    def push(self, text: str, final: bool = False) -> str:
        """The new part of `text`, the whole text so far (already cut at a stop string)."""
        end = len(text) if final else self._safe_end(text)
        delta = text[self.sent : end]
        self.sent = max(self.sent, end)
        return delta

    def _safe_end(self, text: str) -> int:
        whole = text.rstrip("\ufffd")
        return len(whole) - max((each.at_end_of(whole) for each in self.beginnings), default=0)


class Beginning:
    """How much of the beginning of a string stands at the end of a text that grows.

    Each character is looked at once (Knuth, Morris and Pratt), whatever the string is made of.
    """

    def __init__(self, whole: str) -> None:
        self.whole = whole
        self.shorter: list[int] = []  # for each beginning, the longest shorter one it ends with
        self.seen = ""
        self.matched = 0

    def at_end_of(self, text: str) -> int:
        """The length of the longest beginning, short of all of it, that `text` ends with."""
        if not self.shorter:
            self._prepare()
        if not text.startswith(self.seen):
            self.seen, self.matched = "", 0
        for character in text[len(self.seen) :]:
            self.matched = self._next(self.matched, character)
        self.seen = text
        return self.matched

    def _prepare(self) -> None:
        self.shorter = [0]
        for size in range(1, len(self.whole)):
            self.shorter.append(self._next(self.shorter[-1], self.whole[size]))

    def _next(self, matched: int, character: str) -> int:
        while matched and self.whole[matched] != character:
            matched = self.shorter[matched - 1]
        matched += self.whole[matched] == character
        return matched if matched < len(self.whole) else self.shorter[matched - 1]
