"""Anything that runs on the device happens here: one packed forward, then statistics of its logits.

No (batch, length, vocabulary) tensor exists at any time: the vocabulary projection is made only
where a prediction is wanted, in chunks of bounded size, and each chunk is reduced at once to a
token, its probability and P(EOS).
"""

import math
import threading
import time
from collections.abc import Iterator
from collections.abc import Sequence as Rows
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import torch

from rho_eos.decoding.policy import Prediction, SpecialTokens
from rho_eos.engine.batch import PackedBatch, pack
from rho_eos.engine.cores import at_once, shares
from rho_eos.engine.memory import keep_freed_memory
from rho_eos.engine.sequence import Sequence
from rho_eos.models.attention import PACKED, PackedRows, wants_varlen_kernel


class Runner(Protocol):
    """What the engine needs; tests put a scripted model here."""

    def predict(self, sequences: Rows[Sequence]) -> list[Prediction]: ...


class ModelRunner:
    def __init__(self, model: Any, special: SpecialTokens, logits_megabytes: int = 64) -> None:
        # With any other attention, rows of a packed batch would see each other.
        model.set_attn_implementation(PACKED)
        if model.device.type == "cpu":
            keep_freed_memory()
        self.model = model
        self.special = special
        self.device: torch.device = model.device
        self.parallel = 1  # forwards at a time, in the current step
        self._clock = threading.Lock()
        self.forward_seconds = 0.0  # spent in the model itself: layers and vocabulary projection
        vocabulary = model.lm_head.out_features
        self.chunk = max(1, logits_megabytes * 2**20 // (vocabulary * 4))
        # EOS and the other ends: forbidden where a minimum length is not reached yet.
        self.end_ids = torch.tensor(special.ends, device=self.device)
        self.never_or_later = torch.tensor((special.mask, *special.ends), device=self.device)

    def predict(self, sequences: Rows[Sequence]) -> list[Prediction]:
        """One forward for all rows; a sequence's prediction does not depend on its batch mates.

        On a CPU each core forwards some of the rows.
        """
        cores = torch.get_num_threads() if self.device.type == "cpu" else 1
        parts = shares([sequence.cost for sequence in sequences], cores)
        self.parallel = min(cores, len(parts))
        if self.parallel == 1:
            return self._predict(sequences)
        rows = [[sequences[index] for index in part] for part in parts]
        by_part = at_once(self._predict, rows, cores)
        in_order = sorted(zip(chain(*parts), chain(*by_part), strict=True), key=itemgetter(0))
        return [prediction for _, prediction in in_order]

    @torch.inference_mode()
    def _predict(self, sequences: Rows[Sequence]) -> list[Prediction]:
        batch = pack(sequences, self.model.prediction_shift)
        hidden = self._hidden_states(batch)
        token, confidence, eos = self._statistics(hidden, batch, sequences)
        bounds = np.cumsum(batch.counts)[:-1]
        return [
            Prediction(*parts)
            for parts in zip(
                batch.wanted,
                np.split(token, bounds),
                np.split(confidence, bounds),
                np.split(eos, bounds),
                strict=True,
            )
        ]

    def _hidden_states(self, batch: PackedBatch) -> torch.Tensor:
        """(Σ wanted + guided, hidden): the last layer's output where it is read."""
        bounds = None
        if wants_varlen_kernel(self.device, self.model.dtype):
            bounds = torch.tensor((0, *batch.row_lengths), device=self.device)
            bounds = bounds.cumsum(0, dtype=torch.int32)
        with self._timed():
            hidden: torch.Tensor = self.model.model(
                input_ids=self._on_device(batch.input_ids)[None],
                position_ids=self._on_device(batch.position_ids)[None],
                read_at=self._on_device(np.concatenate((batch.read_at, batch.unconditional_at))),
                rows=PackedRows(batch.row_lengths, bounds),
            ).last_hidden_state[0]
        return hidden

    @torch.inference_mode()
    def score(self, sequences: Rows[Sequence], answers: Rows[np.ndarray]) -> list[np.ndarray]:
        """For each sequence, log P of its answer's tokens at its MASKs.

        An answer is the canvas with nothing masked.
        """
        self.parallel = 1
        batch = pack(sequences, self.model.prediction_shift)
        hidden = self._hidden_states(batch)
        targets = [answer[at] for answer, at in zip(answers, batch.wanted, strict=True)]
        target = self._on_device(np.concatenate(targets))[:, None]
        parts = [
            logits.gather(-1, target[part])[:, 0] - logits.logsumexp(-1)
            for part, logits in self._logits(hidden, batch, sequences)
        ]
        scores = torch.cat(parts).double().cpu().numpy()
        return np.split(scores, np.cumsum(batch.counts)[:-1])

    def _statistics(
        self, hidden: torch.Tensor, batch: PackedBatch, sequences: Rows[Sequence]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chosen token, its probability and P(EOS) at every wanted position, chunk by chunk."""
        owners = np.repeat(np.arange(len(sequences)), batch.counts)
        positions = np.concatenate(batch.wanted)
        parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        for part, logits in self._logits(hidden, batch, sequences):
            token = self._choose(logits, owners[part], positions[part], sequences)
            probabilities = torch.softmax(logits, -1, out=logits)  # in place: no second chunk
            confidence = probabilities.gather(-1, token[:, None])[:, 0]
            parts.append((token, confidence, probabilities[:, self.special.eos].clone()))
        token, confidence, eos = (torch.cat(column) for column in zip(*parts, strict=True))
        return (
            token.cpu().numpy(),
            confidence.double().cpu().numpy(),
            eos.double().cpu().numpy(),
        )

    def _logits(
        self, hidden: torch.Tensor, batch: PackedBatch, sequences: Rows[Sequence]
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """(chunk, vocabulary) for one chunk of the wanted positions after the other, guided."""
        wanted, unconditional = hidden.split((len(batch.read_at), len(batch.unconditional_at)))
        owners = np.repeat(np.arange(len(sequences)), batch.counts)
        chunk = max(1, self.chunk // self.parallel)
        for start in range(0, len(wanted), chunk):
            part = slice(start, min(start + chunk, len(wanted)))
            logits = self._project(wanted[part])
            self._guide(logits, unconditional, batch, part, owners, sequences)
            yield part, logits

    def _project(self, hidden: torch.Tensor) -> torch.Tensor:
        """(chunk, vocabulary) in float32."""
        with self._timed():
            logits: torch.Tensor = self.model.lm_head(hidden).float()
        return logits

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Time in the model; cores that work in parallel each count their part of it."""
        started = time.perf_counter()
        yield
        with self._clock:
            self.forward_seconds += (time.perf_counter() - started) / self.parallel

    def _guide(
        self,
        logits: torch.Tensor,
        unconditional: torch.Tensor,
        batch: PackedBatch,
        part: slice,
        owners: np.ndarray,
        sequences: Rows[Sequence],
    ) -> None:
        """Classifier-free guidance, in place: without + (scale + 1) · (own - without prompt)."""
        first, last = np.searchsorted(batch.guided, (part.start, part.stop))
        if first == last:
            return
        guided = batch.guided[first:last]
        scale = torch.tensor(
            [[sequences[owners[index]].params.cfg_scale] for index in guided],
            dtype=logits.dtype,
            device=self.device,
        )
        without = self._project(unconditional[first:last])
        inside = self._on_device(guided - part.start)
        logits[inside] = without + (scale + 1) * (logits[inside] - without)

    def _choose(
        self,
        logits: torch.Tensor,  # (chunk, vocabulary), the same again on return
        owners: np.ndarray,
        positions: np.ndarray,
        sequences: Rows[Sequence],
    ) -> torch.Tensor:
        """The token at each position: the best or a drawn one, never MASK, no end too early.

        What may not be chosen keeps its share of the softmax: it is hidden only for the choice.
        """
        params = [sequence.params for sequence in sequences]
        least = np.array([p.min_new_tokens for p in params])[owners]
        sampled = np.flatnonzero(np.array([p.temperature > 0 for p in params])[owners])
        too_early = self._on_device(np.flatnonzero(positions < least))[:, None]
        hidden_columns = logits[:, self.never_or_later].clone()
        logits[:, self.special.mask] = -torch.inf
        logits[too_early, self.end_ids] = -torch.inf
        chosen = argmax(logits)
        for index in sampled:
            sequence = sequences[owners[index]]
            noise = self._gumbel(sequence, int(positions[index]), logits.shape[-1])
            chosen[index] = (logits[index].double() + sequence.params.temperature * noise).argmax()
        logits[:, self.never_or_later] = hidden_columns
        return chosen

    def _gumbel(self, sequence: Sequence, position: int, size: int) -> torch.Tensor:
        """Noise that depends on seed, step and position alone: batch mates cannot change it.

        Drawn on the CPU, so that a seed means the same on every device.
        """
        key = np.random.SeedSequence((sequence.params.seed, sequence.steps, position))
        uniform = np.random.Generator(np.random.PCG64(key)).random(size)
        return torch.from_numpy(-np.log(-np.log(uniform + 1e-300))).to(self.device)

    def _on_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)


def argmax(scores: torch.Tensor) -> torch.Tensor:
    """(n,) for (n, vocabulary), the leftmost among equals.

    In two passes: the block that holds the maximum, then the place within it. The first is
    vectorised also on a CPU, where torch's own argmax takes four times as long.
    """
    blocks = scores.unflatten(-1, (-1, math.gcd(scores.shape[-1], 128)))
    best = blocks.amax(-1).argmax(-1)
    inside = blocks[torch.arange(len(scores), device=scores.device), best].argmax(-1)
    return best * blocks.shape[-1] + inside
