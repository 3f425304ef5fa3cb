"""Samples as padded torch tensors, as many at a time as a trainer forwards together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from rho_eos.base.errors import UserError
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.blocks import Blocks
from rho_eos.rollouts.arrays import Rollouts


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """k samples. W is the longest prompt with its canvas, T the longest canvas.

    Rows begin with the prompt, the canvas follows at once, and padding (EOS) comes last, so that
    position ids count from 0. Where a sample has nothing, numbers are 0 and flags are False.
    """

    index: torch.Tensor  # (k,) int64, which samples of the rollouts these are
    ids: torch.Tensor  # (k, W) int64, prompt, final canvas, padding
    attention_mask: torch.Tensor  # (k, W) bool, False where there is padding
    prompt_length: torch.Tensor  # (k,) int64
    length: torch.Tensor  # (k,) int64, of the canvas
    positions: torch.Tensor  # (k, T) int64, where in `ids` each token of the canvas stands
    tokens: torch.Tensor  # (k, T) int64, those of the final canvas; padding is EOS
    scored: torch.Tensor  # (k, T) bool, the text and its first end
    committed: torch.Tensor  # (k, T) bool, the model committed this token
    step: torch.Tensor  # (k, T) int64, the forward that it was committed in, from 0; -1: in none
    position: (
        torch.Tensor
    )  # (k, T) int64, where on the canvas of that forward it stood; -1: nowhere
    #: (k, T) float32, of committed tokens in their forwards, over the whole vocabulary, untempered
    old_logprobs: torch.Tensor
    #: The same of drawing them: after temperature, top_k and top_p; 0 at temperature 0
    old_drawn_logprobs: torch.Tensor
    seed: torch.Tensor  # (k,) int64; unsigned seeds above 2^63 wrap
    special: SpecialTokens
    shift: int
    blocks: tuple[Blocks | None, ...]  # k
    trajectory: tuple[np.ndarray, ...] | None  # k, as in the rollouts

    def __len__(self) -> int:
        return len(self.index)


def batches(rollouts: Rollouts, k: int, device: str = "cpu") -> Iterator[Batch]:
    """Padded torch tensors of k samples at a time, in their order."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise UserError(f"k is {k!r}, but takes a number of samples from 1")
    for first in range(0, len(rollouts), k):
        yield _batch(rollouts, np.arange(first, min(first + k, len(rollouts))), device)


def _batch(rollouts: Rollouts, index: np.ndarray, device: str) -> Batch:
    prompt, length = rollouts.prompt_length[index], rollouts.length[index]
    width, eos = int(length.max()), rollouts.special.eos
    there = np.arange(width) < length[:, None]
    ids = np.full((len(index), int((prompt + length).max())), eos)
    for row, s in zip(ids, index, strict=True):
        own = rollouts.prompt_ids[s, : rollouts.prompt_length[s]]
        whole = np.concatenate((own, rollouts.tokens[s, : rollouts.length[s]]))
        row[: len(whole)] = whole
    committed = rollouts.committed[index, :width]

    def logarithm(probability: np.ndarray) -> np.ndarray:
        known = np.where(committed, probability[index, :width], 1)
        return np.log(np.maximum(known, np.finfo(np.float32).tiny)).astype(np.float32)

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Batch(
        index=tensor(index),
        ids=tensor(ids),
        attention_mask=tensor(np.arange(ids.shape[1]) < (prompt + length)[:, None]),
        prompt_length=tensor(prompt),
        length=tensor(length),
        positions=tensor(np.where(there, prompt[:, None] + np.arange(width), 0)),
        tokens=tensor(np.where(there, rollouts.tokens[index, :width], eos)),
        scored=tensor(rollouts.scored[index, :width]),
        committed=tensor(committed),
        step=tensor(rollouts.step[index, :width]),
        position=tensor(rollouts.position[index, :width]),
        old_logprobs=tensor(logarithm(rollouts.probability)),
        old_drawn_logprobs=tensor(logarithm(rollouts.drawn)),
        seed=tensor(rollouts.seed[index].astype(np.int64)),
        special=rollouts.special,
        shift=rollouts.shift,
        blocks=tuple(rollouts.blocks[s] for s in index),
        trajectory=None
        if rollouts.trajectory is None
        else tuple(rollouts.trajectory[s] for s in index),
    )
