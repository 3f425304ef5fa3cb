"""How likely given tokens are where a canvas is masked: what likelihood estimates are made of."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from rho_eos.decoding.sampling import to_device
from rho_eos.engine.batch import RowInput
from rho_eos.engine.errors import RequestFailedError
from rho_eos.engine.runner import ModelRunner


@dataclass(frozen=True, slots=True)
class Masked:
    """An answer behind its prompt, some of its tokens masked."""

    prompt: np.ndarray  # (P,) int64
    answer: np.ndarray  # (L,) int64
    mask: np.ndarray  # (L,) bool
    cfg_scale: float = 0.0
    wanted: np.ndarray | None = None  # (n,) int64, of the masked ones; None: all of them
    blocks: tuple[int, int] | None = None  # as in RowInput

    @property
    def read(self) -> np.ndarray:
        """Where in the answer log-probabilities are read."""
        return np.flatnonzero(self.mask) if self.wanted is None else self.wanted

    def input(self, mask_token: int) -> RowInput:
        canvas = np.where(self.mask, mask_token, self.answer)
        return RowInput(self.prompt, canvas, self.read, self.cfg_scale, blocks=self.blocks)

    @property
    def reads(self) -> int:
        return (1 + (self.cfg_scale > 0)) * len(self.read)

    @property
    def cost(self) -> int:
        return (1 + (self.cfg_scale > 0)) * (len(self.prompt) + len(self.answer))


@dataclass(frozen=True, slots=True)
class Found:
    """What a forward says of the positions that were read of one row."""

    logprobs: np.ndarray  # (n,) float64, of the answer's tokens
    top_ids: np.ndarray  # (n, k) int64, the likeliest tokens
    top_logprobs: np.ndarray  # (n, k) float64


#: Runs a batch when it may.
Turn = Callable[[Callable[[], list[Found]]], list[Found]]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is scored at once, and when: a model that decodes, too, does one thing at a time."""

    max_rows: int
    max_positions: int
    turn: Turn


def score_all(
    runner: ModelRunner, rows: Iterable[Masked], limits: Limits, top: int = 0
) -> Iterator[Found]:
    """What is found for each row, in order; as many at a time as an engine would run together."""
    batch: list[Masked] = []
    positions = 0
    for row in rows:
        full = len(batch) == limits.max_rows
        if batch and (full or positions + row.cost > limits.max_positions):
            yield from limits.turn(partial(score, runner, batch, top))
            batch, positions = [], 0
        batch.append(row)
        positions += row.cost
    if batch:
        yield from limits.turn(partial(score, runner, batch, top))


def score(runner: ModelRunner, rows: Sequence[Masked], top: int = 0) -> list[Found]:
    """For each row, log P of its answer's tokens where they are read, and of the likeliest ones."""
    return runner.shared(partial(_score, runner, top), rows)


@torch.inference_mode()
def _score(runner: ModelRunner, top: int, rows: Sequence[Masked], parallel: int) -> list[Found]:
    batch = runner.pack([row.input(runner.special.mask) for row in rows])
    answers = np.concatenate([row.answer[row.read] for row in rows])
    target = to_device(answers, runner.device)[:, None]
    parts = []
    for part, logits in runner.logits(batch, parallel):
        whole = logits.logsumexp(-1, keepdim=True)
        best = logits.topk(top)
        own = logits.gather(-1, target[part])
        # In one transfer to the host. A token id is exact in float32 up to 2^24.
        parts.append(torch.cat((own - whole, best.values - whole, best.indices.float()), -1))
    found = torch.cat(parts).cpu().numpy().astype(np.float64)
    logprobs, likeliest, ids = found[:, 0], found[:, 1 : 1 + top], found[:, 1 + top :]
    if not np.isfinite(logprobs).all():
        raise RequestFailedError("the model failed: its logits are NaN or infinite")
    arrays = (logprobs, ids.astype(np.int64), likeliest)
    split = (np.split(each, batch.starts[1:]) for each in arrays)
    return [Found(*each) for each in zip(*split, strict=True)]
