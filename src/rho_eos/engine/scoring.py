"""How likely given tokens are where a canvas is masked: what likelihood estimates are made of."""

from collections.abc import Sequence
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

    def input(self, mask_token: int) -> RowInput:
        canvas = np.where(self.mask, mask_token, self.answer)
        return RowInput(self.prompt, canvas, np.flatnonzero(self.mask), self.cfg_scale)

    @property
    def reads(self) -> int:
        return (1 + (self.cfg_scale > 0)) * int(self.mask.sum())

    @property
    def cost(self) -> int:
        return (1 + (self.cfg_scale > 0)) * (len(self.prompt) + len(self.answer))


def score(runner: ModelRunner, rows: Sequence[Masked]) -> list[np.ndarray]:
    """For each row, log P of its answer's tokens where they are masked."""
    return runner.shared(partial(_score, runner), rows)


@torch.inference_mode()
def _score(runner: ModelRunner, rows: Sequence[Masked], parallel: int) -> list[np.ndarray]:
    batch = runner.pack([row.input(runner.special.mask) for row in rows])
    answers = np.concatenate([row.answer[row.mask] for row in rows])
    target = to_device(answers, runner.device)[:, None]
    parts = [
        logits.gather(-1, target[part])[:, 0] - logits.logsumexp(-1)
        for part, logits in runner.logits(batch, parallel)
    ]
    scores = torch.cat(parts).cpu().numpy().astype(np.float64)
    if not np.isfinite(scores).all():
        raise RequestFailedError("the model failed: its logits are NaN or infinite")
    return np.split(scores, batch.starts[1:])
