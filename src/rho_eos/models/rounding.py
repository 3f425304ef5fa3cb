"""Weights as codes of four bits: which step and offset lose least."""

from itertools import product

import torch


def to_codes(groups: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Steps and offsets of groups (…, group, weights), whole numbers, and a code for each weight.

    A weight becomes code * step + offset, with codes from 0 to 15. Tried are steps and offsets near
    those that spread the codes evenly from the least weight of a group to the largest, and the ones
    with the least error are kept. None of the sums exceeds `most`.
    """
    low, high = groups.amin(-1), groups.amax(-1)
    even = ((high - low) / 15).round_()
    best: tuple[torch.Tensor, ...] = ()
    for more, aside in product((0, -1, 1), (0, -0.5, 0.5)):
        step = (even + more).clamp_min_(1)
        offset = ((low + high) / 2 + (aside - 7.5) * step).round_()
        tried = (step, offset, *_codes(groups, step, offset, most))
        if not best:
            best = tried
            continue
        better = tried[-1] < best[-1]
        for kept, found in zip(best, tried, strict=True):
            chosen = better if kept.ndim == better.ndim else better[..., None]
            kept.copy_(torch.where(chosen, found, kept))
    step, offset, codes, _ = best
    return step, offset, codes


def _codes(
    groups: torch.Tensor, step: torch.Tensor, offset: torch.Tensor, most: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest codes, and the error of each group; infinite where a sum exceeds `most`."""
    codes = (groups - offset[..., None]).div_(step[..., None]).round_().clamp_(0, 15)
    found = (codes * step[..., None]).add_(offset[..., None])
    too_large = found.abs().amax(-1) > most
    return codes, found.sub_(groups).square_().sum(-1).masked_fill_(too_large, torch.inf)
