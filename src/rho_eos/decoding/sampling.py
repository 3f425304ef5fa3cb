"""From logits to tokens: the best one, or a drawn one, never one that is forbidden. Pure functions.

argmax(logits + T · Gumbel noise) is a draw from softmax(logits / T). So one uniform number for each
(seed, step, position) and the inverse of the cumulative distribution give the same law, and nothing
the size of the vocabulary is drawn. The numbers depend on seed, step and position alone, so batch
mates cannot change them, and they are made on the CPU, so a seed means the same on every device.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from rho_eos.decoding.params import DecodeParams

#: Below this a draw is the argmax for all practical purposes, and 1 / T would overflow.
COLDEST = 1e-6
#: How many of the likeliest tokens top_k and top_p look at before they look at all.
LIKELIEST = 1024


@dataclass(frozen=True, slots=True)
class Draws:
    """How tokens are drawn at n positions; temperature 0: the best one is taken."""

    temperature: np.ndarray  # (n,) float32
    top_k: np.ndarray  # (n,) int64, 0: all
    top_p: np.ndarray  # (n,) float32
    uniform: np.ndarray  # (n,) float32 in [0, 1)

    def at(self, part: slice) -> "Draws":
        return Draws(self.temperature[part], self.top_k[part], self.top_p[part], self.uniform[part])


def draws_for(
    params: DecodeParams, step: int, positions: np.ndarray, greedy: bool = False
) -> Draws:
    """The draws of one request in one step; `greedy`: as at temperature 0, whatever it asks."""
    n = len(positions)
    temperature = 0.0 if greedy else params.temperature
    uniform = np.zeros(n, dtype=np.float32)
    if temperature > 0 and n:
        # The i-th number belongs to position i, however many positions are asked for.
        noise = np.random.Generator(np.random.PCG64(np.random.SeedSequence((params.seed, step))))
        uniform = noise.random(int(positions[-1]) + 1, dtype=np.float32)[positions]
    return Draws(
        temperature=np.full(n, temperature, dtype=np.float32),
        top_k=np.full(n, params.top_k or 0),
        top_p=np.full(n, params.top_p, dtype=np.float32),
        uniform=uniform,
    )


def joined(parts: list[Draws]) -> Draws:
    return Draws(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("temperature", "top_k", "top_p", "uniform")
        )
    )


def choose(
    logits: torch.Tensor, draws: Draws, looked_at: int | None = LIKELIEST
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(n,) tokens for (n, vocabulary) logits in which what is forbidden is -inf, and how probable
    it was that each is drawn: after temperature, top_k and top_p, 1 where nothing is drawn.

    On a GPU top_k and top_p look at `looked_at` of the likeliest tokens (None: at all), and what
    needed more is flagged in the third, (n,) bool: whoever reads it waits for the device.
    """
    chosen = argmax(logits)
    share = torch.ones(len(logits), device=logits.device)
    beyond = None
    sampled = np.flatnonzero(draws.temperature > 0)
    if len(sampled):
        everywhere = len(sampled) == len(logits)
        index = to_device(sampled, logits.device)
        scores = logits if everywhere else logits[index]
        chosen[index], share[index], of_drawn = _draw(scores, draws, sampled, looked_at)
        if of_drawn is not None:
            beyond = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
            beyond[index] = of_drawn
    return chosen, share, beyond


def _draw(
    logits: torch.Tensor, draws: Draws, rows: np.ndarray, looked_at: int | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    def column(values: np.ndarray) -> torch.Tensor:
        return to_device(values[rows], logits.device)[:, None]

    temperature = column(np.maximum(draws.temperature, COLDEST))
    # exp((l - max) / T): the largest is 1, so nothing overflows however cold it is.
    weights = (logits - logits.amax(-1, keepdim=True)).div_(temperature).exp_()
    limited = np.flatnonzero((draws.top_k[rows] > 0) | (draws.top_p[rows] < 1))
    beyond = None
    if len(limited):
        index = to_device(limited, logits.device)
        few = weights if len(limited) == len(rows) else weights[index]
        own = draws.top_k[rows[limited]], draws.top_p[rows[limited]]
        if logits.device.type == "cpu":
            weights[index] = keep_likeliest(few, *own)
        else:
            beyond = torch.zeros(len(rows), dtype=torch.bool, device=logits.device)
            weights[index], beyond[index] = _among_likeliest(few, *own, looked_at)
    token = inverse_cdf(weights, column(draws.uniform))
    return token, weights.gather(-1, token[:, None])[:, 0] / weights.sum(-1), beyond


def keep_likeliest(
    weights: torch.Tensor, top_k: np.ndarray, top_p: np.ndarray, looked_at: int = LIKELIEST
) -> torch.Tensor:
    """(n, vocabulary) with weight 0 for all but the top_k likeliest, of these all but the first
    top_p; the leftmost among equals, and the token that crosses top_p still belongs to the set.

    A vocabulary is long and the set is short as a rule, so only the likeliest are put in order;
    rows whose set goes beyond these are done again with all of it.
    """
    result, flags = _among_likeliest(weights, top_k, top_p, looked_at)
    beyond = np.flatnonzero(flags.numpy())
    if len(beyond):
        index = torch.from_numpy(beyond)
        again, _ = _among_likeliest(weights[index], top_k[beyond], top_p[beyond], None)
        result[index] = again
    return result


def _among_likeliest(
    weights: torch.Tensor, top_k: np.ndarray, top_p: np.ndarray, looked_at: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `keep_likeliest` returns, and (n,) bool where `looked_at` tokens were not enough."""
    on_cpu = weights.device.type == "cpu"
    vocabulary = weights.shape[-1]
    looked_at = min(vocabulary, max(looked_at or vocabulary, int(top_k.max())))
    ranked = weights.topk(looked_at).values
    most = np.where(top_k > 0, np.minimum(top_k, vocabulary), vocabulary)
    at_most = to_device(most, weights.device)[:, None]
    share = to_device(top_p, weights.device)[:, None]
    shares = ranked.cumsum(-1)
    inside = shares.gather(-1, (at_most - 1).clamp_max(looked_at - 1))
    whole = torch.where(at_most > looked_at, weights.sum(-1, keepdim=True), inside)
    kept = (shares < share * whole).sum(-1, keepdim=True) + 1
    kept = torch.minimum(torch.where(share < 1, kept, at_most), at_most)
    last = ranked.gather(-1, (kept - 1).clamp_max(looked_at - 1))  # the least weight that is kept
    equals = weights == last
    spare = kept - (ranked > last).sum(-1, keepdim=True)
    result = torch.where(weights < last, 0, weights)
    if not on_cpu or (equals.sum(-1, keepdim=True) > spare).numpy().any():
        result.masked_fill_(equals & (equals.cumsum(-1) > spare), 0)
    return result, kept[:, 0] > looked_at


def inverse_cdf(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """(n,) the first index whose cumulative weight exceeds `uniform` (n, 1) of the whole.

    In two passes, the block and then the place within it: a running sum over a whole vocabulary in
    float32 would lose the small weights at its end.
    """
    blocks = weights.unflatten(-1, (-1, _block_size(weights.shape[-1])))
    sums = blocks.sum(-1).cumsum(-1)  # (n, blocks)
    target = uniform * sums[:, -1:]
    block = (sums <= target).sum(-1).clamp_max(sums.shape[-1] - 1)
    rows = torch.arange(len(weights), device=weights.device)
    before = torch.where(block > 0, sums[rows, (block - 1).clamp_min(0)], 0)
    inside = blocks[rows, block].cumsum(-1)  # (n, block size)
    # Rounding may leave the target at the very end: the last token with any weight is meant then.
    rest = torch.minimum(target[:, 0] - before, inside[:, -1] * (1 - 1e-7))
    place = (inside <= rest[:, None]).sum(-1).clamp_max(inside.shape[-1] - 1)
    return block * blocks.shape[-1] + place


def argmax(scores: torch.Tensor) -> torch.Tensor:
    """(n,) for (n, vocabulary), the leftmost among equals.

    On a CPU in two passes as well: the first is vectorised, where torch's own argmax takes four
    times as long.
    """
    if scores.device.type != "cpu":
        return scores.argmax(-1)
    blocks = scores.unflatten(-1, (-1, _block_size(scores.shape[-1])))
    best = blocks.amax(-1).argmax(-1)
    inside = blocks[torch.arange(len(scores), device=scores.device), best].argmax(-1)
    return best * blocks.shape[-1] + inside


def _block_size(vocabulary: int) -> int:
    return math.gcd(vocabulary, 128)


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy on the device, in order with all else that is asked of it, and not waited for where
    that is safe.

    CUDA has taken a copy of ordinary memory before it returns. MPS reads the memory later, when the
    array may be gone and something else there, so on MPS the copy is waited for.
    """
    return torch.from_numpy(array).to(device, non_blocking=device.type == "cuda")
