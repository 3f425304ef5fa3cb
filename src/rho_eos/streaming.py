"""Committed text is a stream: committed tokens never change, so the finished prefix can be sent."""

from collections.abc import Sequence
from typing import Any


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
        end = len(text.rstrip("\ufffd"))
        beginnings = (stop[:size] for stop in self.stop for size in range(1, len(stop)))
        held = max((len(start) for start in beginnings if text.endswith(start)), default=0)
        return min(end, len(text) - held)


class StreamerAdapter:
    """Feeds the streamers of transformers: `put` what is final, `put_draft` what is not."""

    def __init__(self, streamer: Any, prompt: Sequence[int]) -> None:
        self.streamer = streamer
        self.sent = 0
        streamer.put(_row(prompt))

    def push(self, prefix: Sequence[int], draft: Sequence[int], final: bool) -> None:
        """`prefix`: all committed tokens before the first MASK. `draft`: the canvas behind it."""
        if len(prefix) > self.sent:
            self.streamer.put(_row(prefix[self.sent :]))
            self.sent = len(prefix)
        if final:
            self.streamer.end()
        elif len(draft) and hasattr(self.streamer, "put_draft"):
            self.streamer.put_draft(_row(draft))


def _row(ids: Sequence[int]) -> Any:
    import torch

    return torch.tensor(list(ids), dtype=torch.long)
