"""What policies read, taken from the logits of one forward, chunk by chunk.

Token, its probability and P(EOS) for everybody; all else only for rows that ask. All of it goes to
the host in one transfer.
"""

from collections.abc import Sequence

import numpy as np
import torch

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.policy import Prediction
from rho_eos.decoding.sampling import choose, draws_for, joined
from rho_eos.engine.batch import PackedBatch
from rho_eos.engine.row import Row

#: Columns of what is kept of a position. A token id is exact in float32 up to 2^24.
TOKEN, CONFIDENCE, EOS, ENTROPY, MARGIN, EXPECTED = range(COLUMNS := 6)


class Statistics:
    """Those of one packed batch: `read` every chunk in turn, then take the `predictions`."""

    def __init__(
        self, rows: Sequence[Row], batch: PackedBatch, special: SpecialTokens, device: torch.device
    ) -> None:
        self.rows = rows
        self.batch = batch
        self.special = special
        self.device = device
        self.wanted = np.split(batch.positions, batch.starts[1:])
        self.draws = joined(
            [
                draws_for(row.params, row.steps, wanted)
                for row, wanted in zip(rows, self.wanted, strict=True)
            ]
        )
        least = np.array([row.first_end for row in rows])
        self.forbidden = [
            (slice(start, start + len(wanted)), list(tokens))
            for row, start, wanted in zip(rows, batch.starts, self.wanted, strict=True)
            if (tokens := row.forbidden)
        ]
        self.too_early = batch.positions < least[batch.owners]
        self.asks_entropy = np.array([row.policy.needs.entropy for row in rows])[batch.owners]
        self.asks_margin = np.array([row.policy.needs.margin for row in rows])[batch.owners]
        counts = np.array([row.params.logprobs or 0 for row in rows])
        self.asks_top = (counts > 0)[batch.owners]
        self.top = int(counts.max(initial=0))  # so many are kept for all that ask
        # EOS and the other ends are hidden where a minimum length is not reached, or text follows.
        self.ends = torch.tensor(special.ends, device=device)
        self.never_or_later = torch.tensor((special.mask, *special.ends), device=device)
        # Behind the columns of everybody come the likeliest tokens, then their probabilities.
        self.kept = torch.zeros((len(batch.positions), COLUMNS + 2 * self.top), device=device)
        self.asks_expected = np.array([row.policy.needs.expected for row in rows])[batch.owners]
        self.standing = np.zeros(len(batch.positions), dtype=np.int64)  # tokens, where asked for
        for row, start, wanted in zip(rows, batch.starts, self.wanted, strict=True):
            if row.policy.needs.expected:
                there = np.concatenate((row.canvas, row.suffix))
                self.standing[start : start + len(wanted)] = there[wanted]

    def read(self, part: slice, logits: torch.Tensor) -> None:
        """Reduce one chunk of logits, (chunk, vocabulary), which is used up by that."""
        logits = self._forbid(part, self._process(part, logits))
        kept = self.kept[part]
        # What may not be chosen keeps its share of the softmax: it is hidden only for the choice.
        hidden_columns = self._hide(part, logits)
        token = choose(logits, self.draws.at(part))
        asks = self._index(self.asks_margin[part])
        best_two = logits[asks].topk(2).indices if len(asks) else None
        # Not finite where the logits hold NaN or infinity, or where nothing is left to choose.
        possible = logits.gather(-1, token[:, None])[:, 0].isfinite()
        asks_top = self._index(self.asks_top[part])
        likeliest = self._likeliest(logits[asks_top]) if len(asks_top) else None
        logits[:, self.never_or_later] = hidden_columns
        probabilities = torch.softmax(logits, -1, out=logits)  # in place: no second chunk
        kept[:, TOKEN] = token
        confidence = probabilities.gather(-1, token[:, None])[:, 0]
        kept[:, CONFIDENCE] = confidence.masked_fill_(~possible, torch.nan)
        kept[:, EOS] = probabilities[:, self.special.eos]
        if best_two is not None:
            best, second = probabilities[asks].gather(-1, best_two).unbind(-1)
            kept[asks, MARGIN] = best - second
        if likeliest is not None:
            kept[asks_top, COLUMNS : COLUMNS + self.top] = likeliest.to(kept.dtype)
            kept[asks_top, COLUMNS + self.top :] = probabilities[asks_top].gather(
                -1, likeliest.clamp_min(0)
            )
        asks = self._index(self.asks_entropy[part])
        if len(asks):
            kept[asks, ENTROPY] = torch.special.entr(probabilities[asks]).sum(-1)
        asks = self._index(self.asks_expected[part])
        if len(asks):
            standing = torch.from_numpy(self.standing[part]).to(self.device)[asks]
            kept[asks, EXPECTED] = probabilities[asks, standing]

    def predictions(self) -> list[Prediction]:
        """Each row's own, in the order of the rows."""
        kept = np.split(self.kept.cpu().numpy(), self.batch.starts[1:])
        return [
            self._prediction(row, wanted, own)
            for row, wanted, own in zip(self.rows, self.wanted, kept, strict=True)
        ]

    def _likeliest(self, logits: torch.Tensor) -> torch.Tensor:
        """(n, top) the likeliest tokens, best first; -1 where there are not so many to choose."""
        found = logits.topk(min(self.top, logits.shape[-1]))
        tokens = found.indices.where(found.values > -torch.inf, -1)
        return torch.nn.functional.pad(tokens, (0, self.top - tokens.shape[-1]), value=-1)

    def _prediction(self, row: Row, wanted: np.ndarray, kept: np.ndarray) -> Prediction:
        needs, count = row.policy.needs, row.params.logprobs
        numbers = kept.T.astype(np.float64)
        return Prediction(
            wanted,
            kept[:, TOKEN].astype(np.int64),
            numbers[CONFIDENCE],
            numbers[EOS],
            numbers[ENTROPY] if needs.entropy else None,
            numbers[MARGIN] if needs.margin else None,
            numbers[EXPECTED] if needs.expected else None,
            kept[:, COLUMNS : COLUMNS + count].astype(np.int64) if count else None,
            numbers[COLUMNS + self.top :][:count].T if count else None,
        )

    def _process(self, part: slice, logits: torch.Tensor) -> torch.Tensor:
        """Let each request's own processors change its logits."""
        for row, start, wanted in zip(self.rows, self.batch.starts, self.wanted, strict=True):
            first, last = max(start, part.start), min(start + len(wanted), part.stop)
            for processor in row.handle.request.processors if first < last else ():
                inside = slice(first - part.start, last - part.start)
                positions = wanted[first - start : last - start]
                logits[inside] = processor(row.view(), positions, logits[inside])
        return logits

    def _forbid(self, part: slice, logits: torch.Tensor) -> torch.Tensor:
        """What a policy forbids has no share of the softmax either."""
        for own, tokens in self.forbidden:
            first, last = max(own.start, part.start), min(own.stop, part.stop)
            if first < last:
                logits[first - part.start : last - part.start, tokens] = -torch.inf
        return logits

    def _hide(self, part: slice, logits: torch.Tensor) -> torch.Tensor:
        """Put MASK, and ends that come too early, out of reach; returns what stood there."""
        before = logits[:, self.never_or_later].clone()
        logits[:, self.special.mask] = -torch.inf
        logits[self._index(self.too_early[part])[:, None], self.ends] = -torch.inf
        return before

    def _index(self, flags: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.flatnonzero(flags)).to(self.device)
