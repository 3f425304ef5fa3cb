"""log P(answer | prompt) of a masked diffusion model, by Monte Carlo.

Such a model has no exact likelihood to read off: it predicts what was masked. Its bound, as in
LLaDA's evaluation: draw a number l of answer tokens uniformly from 1…L, mask l of them at random,
sum log P of the masked tokens, weigh with L / l, and average over `mc_num` draws.

    log P(answer | prompt)  ≥  E_l E_mask [ L/l · Σ_masked log P(token | prompt, the unmasked) ]

The masks depend on the seed, the prompt and the answer's length alone: a request scores the same
whatever it shares a forward with, and choices of equal length are judged on the same masks.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rho_eos.engine.scoring import Masked, score
from rho_eos.files.jobs import decode_all
from rho_eos.llm import LLM
from rho_eos.text.ask import Ask, Request


@dataclass(frozen=True, slots=True)
class Pair:
    """An answer to be scored behind its prompt."""

    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True, slots=True)
class _Draw:
    """One distinct mask of one pair, with its share of the estimate."""

    pair: int
    row: Masked
    weight: float  # how often it was drawn / draws · L / l


def log_likelihoods(
    llm: LLM, pairs: Sequence[Pair], mc_num: int, seed: int = 0, cfg_scale: float = 0.0
) -> Iterator[float]:
    """An estimate for each pair, in their order, as they are finished."""
    totals: dict[int, float] = {}
    done = 0
    for batch in _batches(llm, _draws(pairs, mc_num, seed, cfg_scale)):
        scores = score(llm.runner, [draw.row for draw in batch])
        for draw, log_probabilities in zip(batch, scores, strict=True):
            share = draw.weight * float(log_probabilities.sum())
            totals[draw.pair] = totals.get(draw.pair, 0.0) + share
        while done < batch[-1].pair:  # a pair is complete once the next one has begun
            yield totals.pop(done, 0.0)
            done += 1
    while done < len(pairs):
        yield totals.pop(done, 0.0)  # an answer without tokens is certain
        done += 1


def greedy_answers(
    llm: LLM, pairs: Sequence[Pair], cfg_scale: float = 0.0
) -> Iterator[tuple[int, bool]]:
    """By pair number: whether committing the surest token each step gives just the answer.

    As in LLaDA's evaluation: one token in each step, a canvas of the answer's length, no blocks.
    """

    def requests() -> Iterator[Request]:
        how = {"policy": "fixed", "commit": "quota", "block_length": None, "early_stop": False}
        for number, pair in enumerate(pairs):
            if length := len(pair.answer):
                lengths = {"initial_length": length, "max_new_tokens": length}
                params = {**how, **lengths, "cfg_scale": cfg_scale}
                yield from llm.preparer.prepare(Ask(pair.prompt, params, id=str(number)))

    for output in decode_all(llm.engine, requests()):
        number = int(output.id)
        yield number, output.canvas_token_ids == pairs[number].answer


def draw_masks(length: int, mc_num: int, random: np.random.Generator) -> np.ndarray:
    """(mc_num, length) bool. The numbers of MASKs are spread evenly over 1…length.

    Spread, because independent ones would only add noise; each is uniform for itself, because
    where the spreading begins is.
    """
    first = int(random.integers(length))
    counts = (first + np.arange(mc_num) * length // mc_num) % length + 1
    ranks = random.random((mc_num, length)).argsort(axis=1)
    return ranks < counts[:, None]


def _draws(pairs: Sequence[Pair], mc_num: int, seed: int, cfg_scale: float) -> Iterator[_Draw]:
    """Every mask of every pair; one that was drawn several times is evaluated once."""
    for number, pair in enumerate(pairs):
        length = len(pair.answer)
        if not length:
            continue
        answer = np.asarray(pair.answer, dtype=np.int64)
        prompt = np.asarray(pair.prompt, dtype=np.int64)
        random = np.random.default_rng((seed, zlib.crc32(prompt.tobytes()), length))
        masks, times = np.unique(draw_masks(length, mc_num, random), axis=0, return_counts=True)
        for mask, drawn in zip(masks, times, strict=True):
            share = drawn / mc_num * length / mask.sum()
            yield _Draw(number, Masked(prompt, answer, mask, cfg_scale), float(share))


def _batches(llm: LLM, draws: Iterator[_Draw]) -> Iterator[list[_Draw]]:
    """Groups of as many draws as the engine would run together."""
    batch: list[_Draw] = []
    positions = 0
    for draw in draws:
        full = len(batch) == llm.config.max_rows
        if batch and (full or positions + draw.row.cost > llm.config.max_positions):
            yield batch
            batch, positions = [], 0
        batch.append(draw)
        positions += draw.row.cost
    if batch:
        yield batch
