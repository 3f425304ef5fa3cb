"""Attention in blocks: how the positions of a row see each other in a block diffusion model.

A block is so many consecutive positions of prompt and answer. A position sees its own block and all
blocks before it, and nothing behind it (docs/method.md §13). So what is finished never changes by
what comes later, and its keys and values may be kept for ever.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks that a model was trained with, or that a request asks for.

    Args:
        length: Positions in a block.
        alignment: Where blocks are counted from. absolute: from the beginning of the row, so that
            the end of a prompt may be the beginning of the first block that is written. prompt:
            from the end of the prompt, so that the first block of the prompt may be short.
        opens_with_store: The first token of a block is read from the forward over the finished
            block before it, and committed whatever its confidence is (Fast-dLLM v2).
    """

    length: int
    alignment: Literal["absolute", "prompt"] = "absolute"
    opens_with_store: bool = False

    def offset(self, prompt: int) -> int:
        """Position i of a row with so long a prompt is in the block (i + offset) // length."""
        return 0 if self.alignment == "absolute" else -prompt % self.length
