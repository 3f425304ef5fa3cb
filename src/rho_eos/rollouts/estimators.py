"""How probable samples are under a model that is being trained, with gradients.

A masked diffusion model has no likelihood to read off, so each method of reinforcement learning has
an estimate of its own. All of them are here, over the same samples: `one_step` (d1), `coupled`
(DiffuCoder), `bound` (the ELBO of LLaDA), `trajectory` (what was sampled, as in TraceRL) and
`in_order` (left to right). docs/rollouts.md defines what each of them takes into account.

`model` is any torch module that maps `input_ids` and `attention_mask` to `logits`, and sees all
positions: `llm.model`, the same under PEFT, or a copy on another device.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from rho_eos.base.errors import UserError
from rho_eos.rollouts.batches import Batch

#: Positions of one forward, padding included. One row that has more is forwarded alone.
POSITIONS = 16384


@dataclass(frozen=True, slots=True)
class Estimate:
    """log-probabilities of the tokens of k samples, and how much each of them counts."""

    logprobs: torch.Tensor  # (k, T) float32 with gradients; 0 where nothing was estimated
    weight: torch.Tensor  # (k, T) float32; 0 where nothing was estimated
    #: (k,) float32, of `total`, where it is an average over draws; it has no gradient.
    variance: torch.Tensor | None = None

    @property
    def total(self) -> torch.Tensor:
        """(k,) the estimate of log P of each sample."""
        return (self.logprobs * self.weight).sum(-1)


class Asked(NamedTuple):
    """One row of a forward, and the tokens of it whose probability is asked for."""

    sample: int
    ids: np.ndarray  # (n,) int64
    at: np.ndarray  # (m,) int64, positions in `ids`
    cells: np.ndarray  # (m,) int64, their places on the final canvas


def one_step(model: Any, batch: Batch, *, prompt_masked: float = 0.0, seed: int = 0) -> Estimate:
    """Every token as if all were written at once: one forward of a canvas of MASKs (d1).

    Args:
        model: What is trained.
        batch: The samples.
        prompt_masked: With this probability each token of the prompt is masked, too. d1 uses 0.15.
        seed: Of these masks.
    """
    random = np.random.default_rng(seed)
    rows = []
    for s, scored, prompt, canvas in _samples(batch):
        hidden = random.random(len(prompt)) < prompt_masked
        own = np.where(hidden, batch.special.mask, prompt)
        rows.append(_asked(batch, s, own, canvas, scored, scored))
    weight = batch.scored.float()
    return Estimate(_scattered(batch, rows, _log_probabilities(model, batch, rows)), weight)


def coupled(
    model: Any, batch: Batch, *, pairs: int = 1, between: tuple[float, float] = (0.2, 0.8),
    seed: int = 0,
) -> Estimate:  # fmt: skip
    """Every token from a mask or from its complement, and once from all MASKs (DiffuCoder).

    With a share λ drawn uniformly from `between`, each token is masked with probability λ in one
    forward, and if not there, in a second one. The mean of log P under all MASKs and of log P where
    it was masked, divided by the probability of that (λ or 1 - λ), is what coupled-GRPO takes for
    the log-probability of a token. `pairs` of masks are averaged.

    Args:
        model: What is trained.
        batch: The samples.
        pairs: How many pairs of masks; there is one forward of MASKs whatever their number is.
        between: The least and the largest share of masked tokens.
        seed: Of shares and masks.
    """
    random = np.random.default_rng(seed)
    rows, shares = [], []
    for s, scored, prompt, canvas in _samples(batch):
        rows.append(_asked(batch, s, prompt, canvas, scored, scored))
        shares.append(0.5)
        for _ in range(pairs):
            share = float(random.uniform(*between))
            chosen = random.random(len(scored)) < share
            for own, part in ((scored[chosen], share), (scored[~chosen], 1 - share)):
                if len(own):
                    rows.append(_asked(batch, s, prompt, canvas, own, own))
                    shares.append(0.5 / (part * pairs))
    found = _log_probabilities(model, batch, rows)
    weighted = [values * share for values, share in zip(found, shares, strict=True)]
    return Estimate(_scattered(batch, rows, weighted), batch.scored.float())


def bound(model: Any, batch: Batch, *, draws: int = 8, seed: int = 0) -> Estimate:
    """LLaDA's lower bound on log P (ELBO), averaged over `draws` masks of each sample.

    Of n tokens a number l from 1 to n is drawn, l of them are masked, and the sum of their log P
    counts n / l times. `variance` is that of the average, from the spread of the draws.

    Args:
        model: What is trained.
        batch: The samples.
        draws: Masks of each sample, at least 2.
        seed: Of the masks.
    """
    if draws < 2:
        raise UserError(f"draws is {draws}, but takes at least 2: one draw has no variance")
    random = np.random.default_rng(seed)
    rows, shares = [], []
    for s, scored, prompt, canvas in _samples(batch):
        n = len(scored)
        for _ in range(draws if n else 0):
            masked = int(random.integers(1, n + 1))
            own = np.sort(random.permutation(n)[:masked])
            rows.append(_asked(batch, s, prompt, canvas, scored[own], scored[own]))
            shares.append(n / masked)
    found = _log_probabilities(model, batch, rows)
    weighted = [values * (share / draws) for values, share in zip(found, shares, strict=True)]
    each = torch.zeros(len(batch), draws)
    number = [0] * len(batch)
    for row, values in zip(rows, weighted, strict=True):
        each[row.sample, number[row.sample]] = values.detach().sum().cpu() * draws
        number[row.sample] += 1
    variance = (each.var(-1) / draws).to(batch.ids.device)
    return Estimate(_scattered(batch, rows, weighted), batch.scored.float(), variance)


def trajectory(model: Any, batch: Batch, *, forwards: int | None = None, seed: int = 0) -> Estimate:
    """Every token as the engine sampled it: on the canvas of the forward that committed it.

    Under the weights of the rollout these are its own log-probabilities. With `forwards`, only so
    many forwards of each sample, drawn at random, are made again; their tokens then weigh as much
    more as there are fewer of them, so that `total` is right on average.

    Args:
        model: What is trained.
        batch: Samples that were rolled out with `trajectory=True`.
        forwards: How many forwards of each sample; None: all in which a token was committed.
        seed: Of the choice of forwards.
    """
    if batch.trajectory is None:
        raise UserError("the samples have no trajectory; roll out with trajectory=True")
    random = np.random.default_rng(seed)
    step, position = batch.step.cpu().numpy(), batch.position.cpu().numpy()
    rows, weight = [], torch.zeros(batch.tokens.shape)
    for s, _, prompt, _ in _samples(batch):
        steps = np.unique(step[s][step[s] >= 0])
        taken = steps
        if forwards is not None and forwards < len(steps):
            taken = np.sort(random.choice(steps, forwards, replace=False))
        for k in taken:
            cells = np.flatnonzero(step[s] == k)
            canvas = batch.trajectory[s][k]
            ids = np.concatenate((prompt, canvas[canvas >= 0]))
            rows.append(Asked(s, ids, len(prompt) + position[s, cells], cells))
            weight[s, cells] = len(steps) / len(taken)
    found = _log_probabilities(model, batch, rows)
    return Estimate(_scattered(batch, rows, found), weight.to(batch.ids.device))


def in_order(model: Any, batch: Batch) -> Estimate:
    """Every token behind all before it, on a canvas whose rest is MASK: the chain rule, exactly.

    This is log P of writing the sample one token at a time from left to right on a canvas of its
    final length, whichever way it was written. It takes a forward for each token.

    Args:
        model: What is trained.
        batch: The samples.
    """
    rows = [
        _asked(batch, s, prompt, canvas, scored[number:], scored[number : number + 1])
        for s, scored, prompt, canvas in _samples(batch)
        for number in range(len(scored))
    ]
    found = _log_probabilities(model, batch, rows)
    return Estimate(_scattered(batch, rows, found), batch.scored.float())


def _samples(batch: Batch) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """For each sample its number, the cells that are scored, its prompt and its final canvas."""
    ids, scored = batch.ids.cpu().numpy(), batch.scored.cpu().numpy()
    for s, (prompt, length) in enumerate(
        zip(batch.prompt_length.tolist(), batch.length.tolist(), strict=True)
    ):
        yield s, np.flatnonzero(scored[s]), ids[s, :prompt], ids[s, prompt : prompt + length]


def _asked(
    batch: Batch,
    sample: int,
    prompt: np.ndarray,
    canvas: np.ndarray,
    masked: np.ndarray,
    asked: np.ndarray,
) -> Asked:
    """A row with MASK in the cells `masked`, and behind the first end."""
    scored = batch.scored[sample].cpu().numpy()[: len(canvas)]
    hidden = np.where(scored, canvas, batch.special.mask)
    hidden[masked] = batch.special.mask
    return Asked(sample, np.concatenate((prompt, hidden)), len(prompt) + asked, asked)


def _log_probabilities(model: Any, batch: Batch, rows: Sequence[Asked]) -> list[torch.Tensor]:
    """For each row, (m,) float32: log P of the tokens that stand in the cells asked for."""
    found: list[torch.Tensor] = [torch.zeros(0)] * len(rows)
    for numbers, blocks in _together(batch, rows):
        own = [rows[number] for number in numbers]
        width = max(len(row.ids) for row in own)
        ids = np.full((len(own), width), batch.special.eos)
        for line, row in zip(ids, own, strict=True):
            line[: len(row.ids)] = row.ids
        lengths = np.array([len(row.ids) for row in own])
        device = batch.ids.device
        mask = torch.from_numpy(np.arange(width) < lengths[:, None]).to(device)
        logits = model(
            input_ids=torch.from_numpy(ids).to(device), attention_mask=mask, **blocks(own)
        ).logits
        line = np.repeat(np.arange(len(own)), [len(row.at) for row in own])
        at = np.concatenate([row.at for row in own]) - batch.shift
        cells = np.concatenate([row.cells for row in own])
        samples = np.repeat([row.sample for row in own], [len(row.at) for row in own])
        chosen = logits[torch.from_numpy(line), torch.from_numpy(at)].float().log_softmax(-1)
        tokens = batch.tokens[torch.from_numpy(samples), torch.from_numpy(cells)]
        values = chosen.gather(-1, tokens[:, None])[:, 0]
        parts = values.split([len(row.at) for row in own])
        for number, part in zip(numbers, parts, strict=True):
            found[number] = part
    return found


def _together(
    batch: Batch, rows: Sequence[Asked]
) -> Iterator[tuple[list[int], Callable[[Sequence[Asked]], dict[str, Any]]]]:
    """Numbers of rows of about the same length that share a forward, and what it is told of
    blocks."""
    lengths = {None if each is None else each.length for each in batch.blocks}
    for length in lengths:

        def blocks(own: Sequence[Asked], length: int | None = length) -> dict[str, Any]:
            if length is None:
                return {}
            prompts = batch.prompt_length.tolist()
            offsets = [
                each.offset(prompts[row.sample])
                for row in own
                if (each := batch.blocks[row.sample]) is not None
            ]
            offset = torch.tensor(offsets, device=batch.ids.device)
            return {"block_length": length, "block_offsets": offset}

        numbers: list[int] = []
        for number in sorted(range(len(rows)), key=lambda number: -len(rows[number].ids)):
            of_sample = batch.blocks[rows[number].sample]
            if (None if of_sample is None else of_sample.length) != length:
                continue
            if numbers and (len(numbers) + 1) * len(rows[numbers[0]].ids) > POSITIONS:
                yield numbers, blocks
                numbers = []
            numbers.append(number)
        if numbers:
            yield numbers, blocks


def _scattered(batch: Batch, rows: Sequence[Asked], values: Sequence[torch.Tensor]) -> torch.Tensor:
    """(k, T) the values in the places of their tokens; what was asked for twice is summed."""
    shape = batch.tokens.shape
    if not rows:
        return torch.zeros(shape, device=batch.ids.device)
    at = np.concatenate([row.sample * shape[1] + row.cells for row in rows])
    flat = torch.zeros(shape.numel(), device=batch.ids.device)
    index = torch.from_numpy(at).to(batch.ids.device)
    return flat.index_add(0, index, torch.cat(list(values))).view(shape)
