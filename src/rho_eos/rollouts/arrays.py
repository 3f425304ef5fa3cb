"""Rollouts: many samples of many prompts as arrays, for reinforcement learning on diffusion models.

A masked diffusion model writes tokens in an order of its own, so what a trainer needs of a sample
is not only its tokens but when each was committed, with which probability, and what the canvas
looked like then. docs/rollouts.md has an example.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.blocks import Blocks
from rho_eos.engine.replay import Replay
from rho_eos.text.ask import Request

if TYPE_CHECKING:
    from rho_eos.rollouts.batches import Batch

MOST_REWARD = 1e100  # whose square is still a number
OUTSIDE = -1  # what shorter samples are filled up with


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """S samples, `n` of each prompt one after the other: sample s answers prompt s // n.

    Arrays over positions are as wide as the longest sample; -1 stands where a shorter one has
    nothing (in `probability` and `drawn`, NaN). T positions are those of the final canvas.
    """

    n: int
    seed: np.ndarray  # (S,) uint64
    prompt_ids: np.ndarray  # (S, P) int64
    prompt_length: np.ndarray  # (S,) int64
    tokens: np.ndarray  # (S, T) int64, the final canvas; what was never decoded behind the end: EOS
    length: np.ndarray  # (S,) int64, of the final canvas
    text_length: np.ndarray  # (S,) int64, tokens of the text: those before its end
    step: np.ndarray  # (S, T) int64, the forward (from 0) whose prediction was committed
    position: np.ndarray  # (S, T) int64, where on the canvas of that forward
    probability: np.ndarray  # (S, T) float64, of the token in that forward
    #: (S, T) float64, of drawing it: after temperature, top_k and top_p; 1 where nothing is drawn
    drawn: np.ndarray
    nfe: np.ndarray  # (S,) int64, forwards
    positions_evaluated: np.ndarray  # (S,) int64, the cost: positions computed in all forwards
    weights_version: np.ndarray  # (S,) int64, how often weights had been replaced before it
    texts: tuple[str, ...]
    finish_reasons: tuple[str, ...]
    special: SpecialTokens  # MASK, EOS and the other ends
    shift: int  # the prediction for position i of a row is read at i - shift
    blocks: tuple[Blocks | None, ...]  # S, those that a sample was decoded in
    #: On request, for each sample (nfe + 1, longest canvas) int64: row k is the canvas that forward
    #: k saw, the last row what was left; MASK where it was open, -1 behind the canvas.
    trajectory: tuple[np.ndarray, ...] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        traced = "" if self.trajectory is None else ", with trajectories"
        return f"<Rollouts: {self.n} samples of each of {self.prompts} prompts{traced}>"

    @property
    def prompts(self) -> int:
        return len(self) // self.n

    @property
    def committed(self) -> np.ndarray:
        """(S, T) bool: the model committed this token. Others were written by an edit of the
        policy, lie open behind the end of the text, or are not there."""
        return self.step >= 0

    @property
    def scored(self) -> np.ndarray:
        """(S, T) bool: the tokens of the text, and the end behind them if there is one. What lies
        behind the first end belongs to no text."""
        at = np.arange(self.tokens.shape[1])
        text = self.text_length[:, None]
        return (at < text) | ((at == text) & np.isin(self.tokens, self.special.ends))

    def batches(self, k: int, device: str = "cpu") -> Iterator["Batch"]:
        """Padded torch tensors of k samples at a time, in their order; the last may have fewer."""
        from rho_eos.rollouts.batches import batches  # imports torch

        return batches(self, k, device)

    def advantages(self, rewards: Sequence[float] | np.ndarray) -> np.ndarray:
        """(S,) float64: by how many standard deviations a sample beats its group's mean (GRPO).

        A group whose rewards are all equal teaches nothing: its advantages are 0.
        """
        try:
            given = np.asarray(rewards, dtype=np.float64)
        except (TypeError, ValueError):
            raise UserError("rewards takes a number for each sample") from None
        if given.shape != (len(self),):
            raise UserError(f"rewards have the shape {given.shape}, but takes ({len(self)},)")
        if not (np.abs(given) <= MOST_REWARD).all():  # NaN is neither
            raise UserError(f"rewards takes numbers from -{MOST_REWARD:g} to {MOST_REWARD:g}")
        groups = given.reshape(self.prompts, self.n)
        above = groups - groups.mean(axis=1, keepdims=True)
        spread = groups.std(axis=1, keepdims=True)
        differ = np.ptp(groups, axis=1, keepdims=True) > 0  # the spread of equals may be rounding
        shares = np.divide(above, spread, out=np.zeros_like(above), where=differ & (spread > 0))
        return shares.reshape(-1)


def collect(
    requests: Sequence[Request],
    outputs: Sequence[Output],
    n: int,
    special: SpecialTokens,
    shift: int,
    trajectory: bool,
) -> Rollouts:
    """The arrays of finished requests, n of each prompt. For `trajectory` they must be traced."""
    step = _padded([output.commit_steps for output in outputs])
    probability = _padded([output.commit_probabilities for output in outputs], np.float64)
    drawn = _padded([output.commit_drawn for output in outputs], np.float64)
    return Rollouts(
        n=n,
        seed=np.array([request.params.seed for request in requests], dtype=np.uint64),
        prompt_ids=_padded([request.canvas.prompt.tolist() for request in requests]),
        prompt_length=_whole(len(request.canvas.prompt) for request in requests),
        tokens=_padded([output.canvas_token_ids for output in outputs]),
        length=_whole(len(output.canvas_token_ids) for output in outputs),
        text_length=_whole(len(output.token_ids) for output in outputs),
        step=step,
        position=_padded([output.commit_positions for output in outputs]),
        probability=np.where(step >= 0, probability, np.nan),
        drawn=np.where(step >= 0, drawn, np.nan),
        nfe=_whole(output.usage.nfe for output in outputs),
        positions_evaluated=_whole(output.usage.positions_evaluated for output in outputs),
        weights_version=_whole(output.weights_version for output in outputs),
        texts=tuple(output.text for output in outputs),
        finish_reasons=tuple(output.finish_reason.value for output in outputs),
        special=special,
        shift=shift,
        blocks=tuple(request.canvas.blocks for request in requests),
        trajectory=tuple(canvases(output, special.mask) for output in outputs)
        if trajectory
        else None,
    )


def canvases(output: Output, mask: int) -> np.ndarray:
    """(nfe + 1, longest) int64: the canvases of a traced request that started from MASKs only."""
    replay = Replay(output.trace[0].length)
    rows = [_tokens(replay, mask)]
    for record in output.trace:
        replay.apply(record)
        rows.append(_tokens(replay, mask))
    return _padded(rows)


def _tokens(replay: Replay, mask: int) -> list[int]:
    return [mask if cell.token is None else cell.token for cell in replay.cells]


def _padded(rows: Sequence[Sequence[float]], dtype: type[np.generic] = np.int64) -> np.ndarray:
    array = np.full((len(rows), max(map(len, rows), default=0)), OUTSIDE, dtype=dtype)
    for row, values in zip(array, rows, strict=True):
        row[: len(values)] = values
    return array


def _whole(numbers: Iterable[int]) -> np.ndarray:
    return np.fromiter(numbers, dtype=np.int64)
