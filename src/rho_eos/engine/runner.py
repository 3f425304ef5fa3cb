"""Anything that runs on the device happens here: one packed forward, then statistics of its logits.

No (batch, length, vocabulary) tensor exists at any time: the vocabulary projection is made only
where a prediction is wanted, in chunks of bounded size, and each chunk is reduced at once to the
few numbers that a policy reads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.prediction import Prediction
from rho_eos.decoding.sampling import to_device
from rho_eos.engine.batch import PackedBatch, RowInput, pack
from rho_eos.engine.cores import LONG_OPERATION, at_once, shares
from rho_eos.engine.forward import Asked
from rho_eos.engine.head import projection
from rho_eos.engine.memory import is_out_of_memory, keep_freed_memory
from rho_eos.engine.row import Row
from rho_eos.engine.statistics import Statistics
from rho_eos.engine.stopwatch import Stopwatch
from rho_eos.engine.store import Stores
from rho_eos.models.attention import PACKED, Kept, PackedRows, wants_varlen_kernel


class Costly(Protocol):
    @property
    def cost(self) -> int:
        """Positions of its forward."""

    @property
    def reads(self) -> int:
        """Of these, where logits over the vocabulary are made."""


#: Tensors of the size of a chunk that exist at once: logits as they come and in float32, and what
#: sampling makes of them.
LOGITS_HELD = 4
Item = TypeVar("Item", bound=Costly)
Result = TypeVar("Result")


class ModelRunner:
    def __init__(
        self,
        model: Any,
        special: SpecialTokens,
        logits_megabytes: int = 64,
        cache_megabytes: int = 4096,
    ) -> None:
        # With any other attention, rows of a packed batch would see each other.
        model.set_attn_implementation(PACKED)
        if model.device.type == "cpu":
            keep_freed_memory()
        self.model = model
        self.special = special
        self.device: torch.device = model.device
        self.stores = Stores(model, cache_megabytes) if hasattr(model, "config") else None
        self.varlen = wants_varlen_kernel(self.device, model.dtype)
        self.weights_version = -1  # when blocks were last kept for other requests
        self.in_model = Stopwatch()  # layers and vocabulary projection
        vocabulary = self.vocabulary = model.lm_head.out_features
        self.chunk = max(1, logits_megabytes * 2**20 // (vocabulary * 4))
        self.larger_chunk: int | None = None  # where there is memory for it
        layers = _weights_of_layers(model)
        self.largest_weight = max(layers, default=0)
        self.weights_per_position = sum(layers)
        self.weights_per_read = model.lm_head.in_features * vocabulary
        self.onto_vocabulary = projection(model.lm_head, self.device, self.weights_per_position)

    def predict(self, rows: Sequence[Row]) -> list[Prediction]:
        """One forward for all rows; a row's prediction does not depend on its batch mates."""
        try:
            self._make_room(rows)
            return self.shared(self._predict, rows)
        except Exception as error:
            if is_out_of_memory(error):
                self.larger_chunk = 0
                if self.stores is not None:
                    self.stores.prefixes.shrink(0)  # what nobody needs now makes room first
            raise

    def shared(
        self, work: Callable[[Sequence[Item], int], list[Result]], rows: Sequence[Item]
    ) -> list[Result]:
        """A result for every row. On a CPU each core may take some of the rows.

        `work` gets rows, and how many cores are at work beside each other.
        """
        cores = torch.get_num_threads() if self.device.type == "cpu" else 1
        loads = [
            row.cost * self.weights_per_position + row.reads * self.weights_per_read for row in rows
        ]
        longest = max(
            sum(row.cost for row in rows) * self.largest_weight,
            sum(row.reads for row in rows) * self.weights_per_read,
        )
        parts = shares([row.cost for row in rows], cores, loads, longest)
        if cores == 1 or parts is None:
            return work(rows, 1)
        parallel = min(cores, len(parts))
        by_part = at_once(
            lambda part: work([rows[index] for index in part], parallel), parts, cores
        )
        in_order = sorted(zip(chain(*parts), chain(*by_part), strict=True), key=itemgetter(0))
        return [result for _, result in in_order]

    def release(self, row: Row) -> None:
        """The row has left: nothing is kept for it."""
        if self.stores is not None:
            self._share(row, self.stores)
            for copy in range(row.copies):
                self.stores.release((row, copy))

    def forget_weights(self) -> None:
        """The weights are others: nothing that was computed with the old ones is used again. (The
        reordered copy of the head looks for itself whether its weight has changed.)"""
        if self.stores is not None:
            self.stores.prefixes.shrink(0)

    def _make_room(self, rows: Sequence[Row]) -> None:
        """A cached row that finds no room, for itself or its guidance, goes on without a cache."""
        for row in rows:
            length, stores = row.canvas.row_length, self.stores
            if row.cache is None:
                continue
            if stores is not None and row.shared is not None:
                stores.shares = True
            if stores is None or any(
                stores.place((row, copy), length) is None for copy in range(row.copies)
            ):
                row.without_cache()
                self.release(row)
            elif row.canvas.step == 0:
                self._begin_with_shared(row, stores)
            elif row.canvas.step == 1:  # its prompt was just computed
                self._share(row, stores)

    def _begin_with_shared(self, row: Row, stores: Stores) -> None:
        """Copy blocks that another row has computed, all but the one that is computed anyway."""
        cache, canvas = row.shared, row.canvas
        if cache is None or canvas.blocks is None or cache.final:
            return
        self._forget_old_weights(stores)
        whole = cache.block_start(canvas, len(canvas.prompt) - canvas.opens)
        reused = stores.begin_with((row, 0), canvas.prompt[:whole], canvas.blocks.length)
        if reused:
            row.reuse(reused)

    def _forget_old_weights(self, stores: Stores) -> None:
        """Somebody may train the model that generates: blocks of earlier weights are others."""
        version = sum(weight._version for weight in self.model.parameters())
        if version != self.weights_version:
            self.weights_version = version
            stores.prefixes.shrink(0)

    def _share(self, row: Row, stores: Stores) -> None:
        """Keep what is final of a row for others."""
        cache, canvas = row.shared, row.canvas
        if cache is not None and canvas.blocks is not None and cache.final:
            self._forget_old_weights(stores)
            tokens = np.concatenate((canvas.prompt, canvas.cells))[: cache.final]
            stores.share((row, 0), tokens, canvas.blocks.length)

    def _kept(self, asked: Sequence[tuple[Row, Asked]]) -> Kept | None:
        """Where keys and values of the rows of the packed batch are kept."""
        if self.stores is None:
            return None
        keys: list[object] = []
        lengths, computed = [], []
        for row, each in asked:
            is_kept = row.cache is not None and not each.is_probe
            keys += [(row, copy) if is_kept else None for copy in range(row.copies)]
            lengths += [each.input.length] * row.copies
            computed += [each.input.computed] * row.copies
        return self.stores.kept(keys, lengths, computed)

    @torch.inference_mode()
    def _predict(self, rows: Sequence[Row], parallel: int) -> list[Prediction]:
        asked = [(row, each) for row in rows for each in row.forward.asked]
        batch = self.pack([each.input for _, each in asked])
        statistics = Statistics(asked, batch, self.special, self.device)
        parts = self._parts(len(batch.read_at), parallel)
        for part, logits in self.logits(batch, parallel, self._kept(asked), parts):
            statistics.read(part, logits)
            if part is parts[-1]:
                parts += statistics.unsettled(parts)
        found = iter(statistics.predictions())
        together = [list(islice(found, len(row.forward.asked))) for row in rows]
        return [replace(own, probes=tuple(probes)) for own, *probes in together]

    def pack(self, inputs: Sequence[RowInput]) -> PackedBatch:
        return pack(inputs, self.model.prediction_shift, self.special.mask)

    def logits(
        self,
        batch: PackedBatch,
        parallel: int = 1,
        kept: Kept | None = None,
        parts: Sequence[slice] | None = None,
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """(chunk, vocabulary) for one chunk of the wanted positions after the other, guided; for
        `parts` of them where these are given, to which may be added on the way."""
        hidden = self._hidden_states(batch, parallel, kept)
        wanted, unconditional = hidden.split((len(batch.read_at), len(batch.unconditional_at)))
        for part in self._parts(len(wanted), parallel) if parts is None else parts:
            logits = self._project(wanted[part], parallel)
            first, last = np.searchsorted(batch.guided, (part.start, part.stop))
            if first < last:
                without = self._project(unconditional[first:last], parallel)
                inside = self._on_device(batch.guided[first:last] - part.start)
                scale = self._on_device(batch.cfg_scale[first:last])[:, None]
                logits[inside] = guided(logits[inside], without, scale)
            yield part, logits

    def _parts(self, count: int, parallel: int) -> list[slice]:
        """So many positions in chunks whose logits may be held at once. A GPU may hold more than it
        was allowed, up to an eighth of what was free when it first had to choose: each chunk is
        dozens of kernels."""
        chunk = max(1, self.chunk // parallel)
        if self.device.type == "cuda" and count > chunk:
            if self.larger_chunk is None:
                free = torch.cuda.mem_get_info(self.device)[0] // (8 * LOGITS_HELD)
                self.larger_chunk = free // (4 * self.vocabulary)
            chunk = max(chunk, self.larger_chunk)
        return [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]

    def _hidden_states(self, batch: PackedBatch, parallel: int, kept: Kept | None) -> torch.Tensor:
        """(n + g, hidden): the last layer's output where it is read."""
        rows = PackedRows(batch.row_lengths, batch.spans, kept, self.device, self.varlen)

        @torch.inference_mode()  # which holds for one thread
        def layers(batch: PackedBatch) -> torch.Tensor:
            hidden: torch.Tensor = self.model.model(
                input_ids=self._on_device(batch.input_ids)[None],
                position_ids=self._on_device(batch.position_ids)[None],
                read_at=self._on_device(np.concatenate((batch.read_at, batch.unconditional_at))),
                rows=rows,
            ).last_hidden_state[0]
            return hidden

        cores = torch.get_num_threads() if self.device.type == "cpu" else 1
        long = len(batch.input_ids) * self.largest_weight >= LONG_OPERATION
        with self.in_model.running(parallel):
            if cores == 1 or long:
                return layers(batch)
            return at_once(layers, [batch], cores)[0]  # all cores are for the vocabulary only

    def _project(self, hidden: torch.Tensor, parallel: int) -> torch.Tensor:
        """(chunk, vocabulary) in float32."""
        with self.in_model.running(parallel):
            return self.onto_vocabulary(hidden).float()

    def _on_device(self, array: np.ndarray) -> torch.Tensor:
        return to_device(array, self.device)


def guided(logits: torch.Tensor, without: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Classifier-free guidance: away from what the model says without the prompt."""
    return without + (scale + 1) * (logits - without)


def _weights_of_layers(model: Any) -> list[int]:
    """Numbers in each weight of the layers, however few bytes each of them takes."""
    return [
        module.in_features * module.out_features
        for name, module in model.named_modules()
        if ".layers." in name and hasattr(module, "in_features")
    ]
