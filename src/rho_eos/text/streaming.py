"""Committed text is a stream: committed tokens never change, so the finished prefix can be sent."""

from collections.abc import Sequence


class TextDelta:
    """Cuts a growing text into deltas, holding back what may still change its meaning.

    That is a character whose bytes are not all there yet, and the beginning of a stop string.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.stop = stop
        self.sent = 0

    def push(self, text: str, final: bool = False) -> str:
        """The new part of `text`, the whole text so far (already cut at a stop string)."""
        end = len(text) if final else self._safe_end(text)
        delta = text[self.sent : end]
        self.sent = max(self.sent, end)
        return delta

    def _safe_end(self, text: str) -> int:
        whole = text.rstrip("\ufffd")
        return min((_before_beginning(whole, stop) for stop in self.stop), default=len(whole))


def _before_beginning(text: str, stop: str) -> int:
    """Where the beginning of a stop string starts that `text` ends with; else its length.

    Stop strings are few and short (`FewTexts`), so trying every start takes no time.
    """
    first = max(0, len(text) - len(stop) + 1)
    starts = (at for at in range(first, len(text)) if stop.startswith(text[at:]))
    return next(starts, len(text))
