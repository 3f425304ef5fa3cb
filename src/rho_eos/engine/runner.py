"""Anything that runs on the device happens here: one packed forward, then statistics of its logits.

No (batch, length, vocabulary) tensor exists at any time: the vocabulary projection is made only
where a prediction is wanted, in chunks of bounded size, and each chunk is reduced at once to the
few numbers that a policy reads.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from rho_eos.decoding.policy import Prediction
from rho_eos.engine.batch import PackedBatch, RowInput, pack
from rho_eos.engine.cores import at_once, shares
from rho_eos.engine.memory import keep_freed_memory
from rho_eos.engine.row import Row
from rho_eos.engine.statistics import Statistics
from rho_eos.engine.stopwatch import Stopwatch
from rho_eos.models.attention import PACKED, PackedRows, wants_varlen_kernel
from rho_eos.tokens import SpecialTokens


class Costly(Protocol):
    @property
    def cost(self) -> int:
        """Positions of its forward."""


Item = TypeVar("Item", bound=Costly)
Result = TypeVar("Result")


class ModelRunner:
    def __init__(self, model: Any, special: SpecialTokens, logits_megabytes: int = 64) -> None:
        # With any other attention, rows of a packed batch would see each other.
        model.set_attn_implementation(PACKED)
        if model.device.type == "cpu":
            keep_freed_memory()
        self.model = model
        self.special = special
        self.device: torch.device = model.device
        self.varlen = wants_varlen_kernel(self.device, model.dtype)
        self.in_model = Stopwatch()  # layers and vocabulary projection
        vocabulary = model.lm_head.out_features
        self.chunk = max(1, logits_megabytes * 2**20 // (vocabulary * 4))
        self.largest_weight = _largest_weight(model)

    def predict(self, rows: Sequence[Row]) -> list[Prediction]:
        """One forward for all rows; a row's prediction does not depend on its batch mates."""
        return self.shared(self._predict, rows)

    def shared(
        self, work: Callable[[Sequence[Item], int], list[Result]], rows: Sequence[Item]
    ) -> list[Result]:
        """A result for every row. On a CPU each core may take some of the rows.

        `work` gets rows, and how many cores are at work beside each other.
        """
        cores = torch.get_num_threads() if self.device.type == "cpu" else 1
        parts = shares([row.cost for row in rows], cores, self.largest_weight)
        if cores == 1 or parts is None:
            return work(rows, 1)
        parallel = min(cores, len(parts))
        by_part = at_once(
            lambda part: work([rows[index] for index in part], parallel), parts, cores
        )
        in_order = sorted(zip(chain(*parts), chain(*by_part), strict=True), key=itemgetter(0))
        return [result for _, result in in_order]

    def release(self, row: Row) -> None:
        """Nothing is kept between steps."""

    @torch.inference_mode()
    def _predict(self, rows: Sequence[Row], parallel: int) -> list[Prediction]:
        batch = self.pack([row.input() for row in rows])
        statistics = Statistics(rows, batch, self.special, self.device)
        for part, logits in self.logits(batch, parallel):
            statistics.read(part, logits)
        return statistics.predictions()

    def pack(self, inputs: Sequence[RowInput]) -> PackedBatch:
        return pack(inputs, self.model.prediction_shift, self.special.mask)

    def logits(self, batch: PackedBatch, parallel: int = 1) -> Iterator[tuple[slice, torch.Tensor]]:
        """(chunk, vocabulary) for one chunk of the wanted positions after the other, guided."""
        hidden = self._hidden_states(batch, parallel)
        wanted, unconditional = hidden.split((len(batch.read_at), len(batch.unconditional_at)))
        chunk = max(1, self.chunk // parallel)
        for start in range(0, len(wanted), chunk):
            part = slice(start, min(start + chunk, len(wanted)))
            logits = self._project(wanted[part], parallel)
            first, last = np.searchsorted(batch.guided, (part.start, part.stop))
            if first < last:
                without = self._project(unconditional[first:last], parallel)
                inside = self._on_device(batch.guided[first:last] - part.start)
                scale = self._on_device(batch.cfg_scale[first:last])[:, None]
                logits[inside] = guided(logits[inside], without, scale)
            yield part, logits

    def _hidden_states(self, batch: PackedBatch, parallel: int) -> torch.Tensor:
        """(n + g, hidden): the last layer's output where it is read."""
        cu_seqlens = None
        if self.varlen:
            cu_seqlens = self._on_device(batch.cu_seqlens)
        with self.in_model.running(parallel):
            hidden: torch.Tensor = self.model.model(
                input_ids=self._on_device(batch.input_ids)[None],
                position_ids=self._on_device(batch.position_ids)[None],
                read_at=self._on_device(np.concatenate((batch.read_at, batch.unconditional_at))),
                rows=PackedRows(batch.row_lengths, cu_seqlens),
            ).last_hidden_state[0]
        return hidden

    def _project(self, hidden: torch.Tensor, parallel: int) -> torch.Tensor:
        """(chunk, vocabulary) in float32."""
        with self.in_model.running(parallel):
            logits: torch.Tensor = self.model.lm_head(hidden).float()
        return logits

    def _on_device(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)


def guided(logits: torch.Tensor, without: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Classifier-free guidance: away from what the model says without the prompt."""
    return without + (scale + 1) * (logits - without)


def _largest_weight(model: Any) -> int:
    """Numbers in the largest weight of a layer, however few bytes each of them takes."""
    sizes = [
        module.in_features * module.out_features
        for name, module in model.named_modules()
        if ".layers." in name and hasattr(module, "in_features")
    ]
    return max(sizes, default=0)
