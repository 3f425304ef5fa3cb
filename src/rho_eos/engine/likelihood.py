"""log P(answer | prompt) of a masked diffusion model, in three ways.

Such a model has no one likelihood to read off: it predicts what is masked, in any order.

bound   LLaDA's: draw a number l of answer tokens uniformly from 1…L, mask l of them at random, sum
        log P of the masked tokens, weigh with L / l, and average over the draws:
            log P(answer | prompt)  ≥  E_l E_mask [ L/l · Σ_masked log P(token | the unmasked) ]
        Where there are no more masks than draws, all of them are summed, and the bound is exact.
chain   The tokens from left to right, each with those behind it masked: the exact probability of
        the answer when it is written in this order. L forwards.
pseudo  Each token masked alone, all others seen: no probability of the answer, but what
        pseudo-likelihoods of masked language models are. L forwards.

Masks depend on the seed, the prompt and the answer's length alone: a pair scores the same whatever
it shares a forward with, and answers of equal length are judged on the same masks.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import comb
from typing import Any

import numpy as np

from rho_eos.decoding.blocks import Blocks
from rho_eos.engine.params import ScoreParams
from rho_eos.engine.runner import ModelRunner
from rho_eos.engine.scoring import Found, Limits, Masked, score_all
from rho_eos.text.pairs import Pair


@dataclass(frozen=True, slots=True)
class Score:
    """How likely an answer is.

    Args:
        logprob: Natural logarithm of its probability, or what estimates or bounds it.
        standard_error: Of the estimate, over the draws; 0 where nothing is drawn, None where a
            single draw does not tell.
        token_ids: The answer.
        token_logprobs: What each token contributes; their sum is `logprob`.
        forwards: Rows that were evaluated for it, each as long as prompt and answer.
        method: How it was made.
        top: Of each token, where they were asked for, the likeliest ones and their logarithms.
    """

    logprob: float
    standard_error: float | None
    token_ids: list[int]
    token_logprobs: list[float]
    forwards: int
    method: str
    top: list[list[tuple[int, float]]]

    @property
    def per_token(self) -> float:
        """The mean over the tokens."""
        return self.logprob / max(1, len(self.token_ids))

    def as_dict(self) -> dict[str, Any]:
        """For answers and files."""
        return {
            "logprob": self.logprob,
            "standard_error": self.standard_error,
            "per_token": self.per_token,
            "tokens": len(self.token_ids),
            "token_ids": self.token_ids,
            "token_logprobs": self.token_logprobs,
            "method": self.method,
            "forwards": self.forwards,
        }


@dataclass(frozen=True, slots=True)
class _Plan:
    """The masks of one pair, and what they say together."""

    masks: np.ndarray  # (m, L) bool
    wanted: list[np.ndarray] | None  # of each mask, what is read; None: all that is masked
    weights: np.ndarray  # (m,) of the sum over each mask; they sum up to the estimate
    drawn: np.ndarray | None  # (draws,) which mask each draw was; None: nothing is drawn


def score_pairs(
    runner: ModelRunner,
    pairs: Sequence[Pair],
    how: ScoreParams,
    limits: Limits,
    top: int = 0,
    blocks: Blocks | None = None,
) -> Iterator[Score]:
    """A score for each pair, in their order, as they are finished.

    Of a model in blocks, whose method is the chain, a token's block is masked to its end and what
    is behind that is not there, as when the model writes.
    """
    plans = [_plan(pair, how) for pair in pairs]

    def rows() -> Iterator[Masked]:
        for pair, plan in zip(pairs, plans, strict=True):
            prompt, answer = (np.asarray(ids, dtype=np.int64) for ids in (pair.prompt, pair.answer))
            for number, mask in enumerate(plan.masks):
                wanted = None if plan.wanted is None else plan.wanted[number]
                whole = Masked(prompt, answer, mask, how.cfg_scale, wanted)
                yield whole if blocks is None else _up_to_its_block(whole, number, blocks)

    found = score_all(runner, rows(), limits, top)
    for pair, plan in zip(pairs, plans, strict=True):
        yield _together(pair, plan, how, [next(found) for _ in plan.masks])


def _up_to_its_block(row: Masked, at: int, blocks: Blocks) -> Masked:
    """The row of a chain that asks for the token `at`, cut or filled to the end of its block."""
    first, offset = len(row.prompt), blocks.offset(len(row.prompt))
    cells = ((first + at + offset) // blocks.length + 1) * blocks.length - offset - first
    answer = np.pad(row.answer[:cells], (0, max(0, cells - len(row.answer))))
    return replace(row, answer=answer, mask=np.arange(cells) >= at, blocks=(blocks.length, offset))


def draw_masks(length: int, draws: int, random: np.random.Generator) -> np.ndarray:
    """(draws, length) bool. The numbers of MASKs are spread evenly over 1…length.

    Spread, because independent ones would only add noise; each is uniform for itself, because
    where the spreading begins is.
    """
    first = int(random.integers(length))
    counts = (first + np.arange(draws) * length // draws) % length + 1
    ranks = random.random((draws, length)).argsort(axis=1)
    return ranks < counts[:, None]


def _plan(pair: Pair, how: ScoreParams) -> _Plan:
    length = len(pair.answer)
    if how.method != "bound" or not length:
        alone = np.eye(length, dtype=bool)
        masks = alone if how.method == "pseudo" else np.triu(np.ones_like(alone))
        return _Plan(masks, [np.array([at]) for at in range(length)], np.ones(length), None)
    if length < 24 and 2**length - 1 <= how.draws:
        every = np.array(list(product((False, True), repeat=length))[1:])
        counts = every.sum(axis=1)
        # 1 / L for the count, 1 / C(L, l) for the choice, and L / l for the sum.
        weights = np.array([1 / (comb(length, int(count)) * count) for count in counts])
        return _Plan(every, None, weights, None)
    prompt = np.asarray(pair.prompt, dtype=np.int64)
    random = np.random.default_rng((how.seed, zlib.crc32(prompt.tobytes()), length))
    drawn = draw_masks(length, how.draws, random)
    # In the order of their counts, so that neighbours are draws of almost the same kind.
    drawn = drawn[np.argsort(drawn.sum(axis=1), kind="stable")]
    masks, which = np.unique(drawn, axis=0, return_inverse=True)
    which = which.reshape(-1)
    times = np.bincount(which, minlength=len(masks))
    return _Plan(masks, None, times / how.draws * length / masks.sum(axis=1), which)


def _together(pair: Pair, plan: _Plan, how: ScoreParams, found: list[Found]) -> Score:
    length = len(pair.answer)
    tokens = np.zeros(length)
    top: list[list[tuple[int, float]]] = []
    for number, (mask, each) in enumerate(zip(plan.masks, found, strict=True)):
        at = np.flatnonzero(mask) if plan.wanted is None else plan.wanted[number]
        tokens[at] += plan.weights[number] * each.logprobs
        if plan.wanted is not None:
            best = zip(each.top_ids[0].tolist(), each.top_logprobs[0].tolist(), strict=True)
            top.append(list(best))
    return Score(
        logprob=float(tokens.sum()),
        standard_error=_error(plan, found, length),
        token_ids=list(pair.answer),
        token_logprobs=tokens.tolist(),
        forwards=len(plan.masks),
        method=how.method,
        top=top,
    )


def _error(plan: _Plan, found: list[Found], length: int) -> float | None:
    """Of the mean over the draws, from the differences of neighbours.

    The numbers of MASKs are spread, not drawn, so how much a draw varies with them is no error;
    neighbours differ by their choice of tokens almost alone.
    """
    if plan.drawn is None:
        return 0.0
    if len(plan.drawn) < 2:
        return None
    sums = np.array([each.logprobs.sum() for each in found]) * length / plan.masks.sum(axis=1)
    steps = np.diff(sums[plan.drawn])
    return float(np.sqrt((steps**2).mean() / 2 / len(plan.drawn)))
