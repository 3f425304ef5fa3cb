"""What policies read, taken from the logits of one forward, chunk by chunk.

Token, its probability and P(EOS) for everybody; all else only for rows that ask. All of it goes to
the host in one transfer.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.sampling import LIKELIEST, choose, draws_for, joined, to_device
from rho_eos.engine.batch import PackedBatch
from rho_eos.engine.constrained import constrained
from rho_eos.engine.forward import Asked
from rho_eos.engine.row import Row

#: Columns of what is kept of a position. A token id is exact in float32 up to 2^24.
TOKEN, CONFIDENCE, DRAWN, EOS, ENTROPY, MARGIN, EXPECTED, UNSETTLED = range(COLUMNS := 8)


class Statistics:
    """Those of one packed batch: `read` every chunk in turn, then take the `predictions`."""

    def __init__(
        self,
        asked: Sequence[tuple[Row, Asked]],
        batch: PackedBatch,
        special: SpecialTokens,
        device: torch.device,
    ) -> None:
        self.asked = asked
        self.batch = batch
        self.special = special
        self.device = device
        self.wanted = np.split(batch.positions, batch.starts[1:])
        own_draws = [
            draws_for(row.params, row.canvas.step, wanted, each.greedy)
            for (row, each), wanted in zip(asked, self.wanted, strict=True)
        ]
        self.draws = joined(own_draws)
        least = np.array([row.first_end(each.canvas) for row, each in asked])
        self.forbidden = [
            (slice(start, start + len(wanted)), list(tokens))
            for (row, each), start, wanted in zip(asked, batch.starts, self.wanted, strict=True)
            if (tokens := row.forbidden(each.canvas))
        ]
        self.too_early = batch.positions < least[batch.owners]
        self.forms = [
            None if row.form is None else constrained(row, each, row.form, draws, device)
            for (row, each), draws in zip(asked, own_draws, strict=True)
        ]
        needs = [row.needs for row, _ in asked]
        self.asks_entropy = np.array([each.entropy for each in needs])[batch.owners]
        self.asks_margin = np.array([each.margin for each in needs])[batch.owners]
        counts = np.array([each.top for each in needs])
        self.asks_top = (counts > 0)[batch.owners]
        self.top = int(counts.max(initial=0))  # so many are kept for all that ask
        # EOS and the other ends are hidden where a minimum length is not reached, or text follows.
        self.ends = to_device(np.array(special.ends), device)
        self.own_ends = {  # of requests that name further ones
            number: to_device(np.array(row.special.ends), device)
            for number, (row, _) in enumerate(asked)
            if row.special.stops
        }
        hideable = dict.fromkeys((special.mask, *special.ends))
        hideable |= dict.fromkeys(stop for row, _ in asked for stop in row.special.stops)
        self.never_or_later = to_device(np.array([*hideable]), device)
        self.found: np.ndarray | None = None  # on the host
        # How many of the likeliest tokens top_k and top_p look at. Where others change logits, who
        # are asked once, they look at all (None).
        changed = any(form is not None for form in self.forms) or any(
            row.handle.request.processors for row, _ in asked
        )
        self.looked_at = None if changed else LIKELIEST
        # Behind the columns of everybody come the likeliest tokens, then their probabilities.
        self.kept = torch.zeros((len(batch.positions), COLUMNS + 2 * self.top), device=device)
        expected = [each.tokens for _, each in asked]
        self.asks_expected = np.array([each is not None for each in expected])[batch.owners]
        self.expected = np.concatenate(
            [
                np.zeros(len(wanted), dtype=np.int64) if tokens is None else tokens
                for tokens, wanted in zip(expected, self.wanted, strict=True)
            ]
        )

    def read(self, part: slice, logits: torch.Tensor) -> None:
        """Reduce one chunk of logits, (chunk, vocabulary), which is used up by that."""
        logits = self._forbid(part, self._process(part, logits))
        for number, inside, of_wanted in self._own(part):
            form = self.forms[number]
            if form is not None:
                form.read(of_wanted, logits[inside])
        kept = self.kept[part]
        # What may not be chosen keeps its share of the softmax: it is hidden only for the choice.
        hidden_columns = self._hide(part, logits)
        token, kept[:, DRAWN], beyond = choose(logits, self.draws.at(part), self.looked_at)
        if beyond is not None:
            kept[:, UNSETTLED] = beyond
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
            expected = to_device(self.expected[part], self.device)[asks]
            kept[asks, EXPECTED] = probabilities[asks, expected]

    def unsettled(self, parts: Sequence[slice]) -> list[slice]:
        """Bring to the host what was found. Those parts are returned that are to be read once more,
        because top_k or top_p need to look at more tokens than they did. Few ever do."""
        self.found = self.kept.cpu().numpy()
        flags = self.found[:, UNSETTLED] > 0
        again = [part for part in parts if flags[part].any()] if self.looked_at else []
        self.looked_at = None
        return again

    def predictions(self) -> list[Prediction]:
        """That of every canvas, in their order."""
        if self.found is None:
            self.unsettled(())
        assert self.found is not None
        kept = np.split(self.found, self.batch.starts[1:])
        found = [
            self._prediction(row.needs, each, wanted, own)
            for (row, each), wanted, own in zip(self.asked, self.wanted, kept, strict=True)
        ]
        return [
            free if form is None else form.prediction(free)
            for free, form in zip(found, self.forms, strict=True)
        ]

    def _likeliest(self, logits: torch.Tensor) -> torch.Tensor:
        """(n, top) the likeliest tokens, best first; -1 where there are not so many to choose."""
        found = logits.topk(min(self.top, logits.shape[-1]))
        tokens = found.indices.where(found.values > -torch.inf, -1)
        return torch.nn.functional.pad(tokens, (0, self.top - tokens.shape[-1]), value=-1)

    def _prediction(
        self, needs: Needs, asked: Asked, wanted: np.ndarray, kept: np.ndarray
    ) -> Prediction:
        numbers, top = kept.T.astype(np.float64), slice(COLUMNS, COLUMNS + needs.top)
        return Prediction(
            wanted,
            kept[:, TOKEN].astype(np.int64),
            numbers[CONFIDENCE],
            numbers[EOS],
            drawn=numbers[DRAWN],
            entropy=numbers[ENTROPY] if needs.entropy else None,
            margin=numbers[MARGIN] if needs.margin else None,
            top_token=kept[:, top].astype(np.int64) if needs.top else None,
            top_probability=numbers[COLUMNS + self.top :][: needs.top].T if needs.top else None,
            expected=numbers[EXPECTED] if asked.tokens is not None else None,
        )

    def _process(self, part: slice, logits: torch.Tensor) -> torch.Tensor:
        """Let each request's own processors change its logits."""
        for number, inside, of_wanted in self._own(part):
            row, each = self.asked[number]
            for processor in row.handle.request.processors:
                positions = self.wanted[number][of_wanted]
                logits[inside] = processor(row.id, each.canvas, positions, logits[inside])
        return logits

    def _own(self, part: slice) -> Iterator[tuple[int, slice, slice]]:
        """Which canvases have positions in a chunk: their number, where these are in the chunk, and
        which of those that are wanted of the canvas they are."""
        for number, (start, wanted) in enumerate(zip(self.batch.starts, self.wanted, strict=True)):
            first, last = max(start, part.start), min(start + len(wanted), part.stop)
            if first < last:
                inside = slice(first - part.start, last - part.start)
                yield number, inside, slice(first - start, last - start)

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
        early = self.too_early[part]
        logits[self._index(early)[:, None], self.ends] = -torch.inf
        for number, ends in self.own_ends.items():
            own = self._index(early & (self.batch.owners[part] == number))
            logits[own[:, None], ends] = -torch.inf
        return before

    def _index(self, flags: np.ndarray) -> torch.Tensor:
        return to_device(np.flatnonzero(flags), self.device)
