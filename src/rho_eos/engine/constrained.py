"""What a form does to the predictions of a row: its logits, reduced to classes of tokens.

A class keeps its best token and the mass of all of its tokens, for each position. The chain of the
form then says which classes the best accepted text has, or one that is drawn, and how probable they
are (`decoding/chain.py`); best tokens and masses make tokens and confidences of that.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from rho_eos.decoding.automaton import Automaton
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.chain import Posterior, Weights
from rho_eos.decoding.form import Form, draws
from rho_eos.decoding.prediction import Needs, Prediction
from rho_eos.decoding.sampling import COLDEST, Draws
from rho_eos.engine.forward import Asked
from rho_eos.engine.row import Row


class Classes:
    """The tokens of an automaton in the order of their classes, on one device."""

    def __init__(self, automaton: Automaton, device: torch.device) -> None:
        known = np.flatnonzero(automaton.classes >= 0)
        self.tokens = known[np.argsort(automaton.classes[known], kind="stable")]
        self.of = automaton.classes[self.tokens]
        self.count = automaton.next.shape[1]
        self.present, self.first = np.unique(self.of, return_index=True)
        self.sizes = np.diff(self.first, append=len(self.of))
        self.tokens_there = torch.from_numpy(self.tokens).to(device)

    def spread(self, values: np.ndarray, empty: float = -np.inf) -> np.ndarray:
        """(n, classes) with those that have tokens in their places."""
        result = np.full((len(values), self.count), empty, dtype=np.float64)
        result[:, self.present] = values
        return result


@lru_cache(maxsize=128)
def classes_of(automaton: Automaton, device: torch.device) -> Classes:
    return Classes(automaton, device)


@dataclass(eq=False)
class Constrained:
    """The logits of one canvas, as they come: `read` each part, then take the `prediction`."""

    form: Form
    canvas: Canvas
    wanted: np.ndarray
    step: int
    temperature: float
    needs: Needs
    uniform: np.ndarray  # (n,) which token of a class is drawn
    expected: np.ndarray | None
    device: torch.device
    is_probe: bool
    _read: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.classes = classes_of(self.form.automaton, self.device)

    def read(self, part: slice, logits: torch.Tensor) -> None:
        """Reduce (m, vocabulary) logits at wanted[part]."""
        classes = self.classes
        keep = {"eos": logits[:, self.canvas.special.eos]}
        if self.expected is not None:
            tokens = torch.from_numpy(self.expected[part]).to(self.device)
            keep["expected"] = logits.gather(-1, tokens[:, None])[:, 0]
        if self.needs.top:
            keep["whole"] = logits.logsumexp(-1)
        own = logits.index_select(1, classes.tokens_there).cpu().numpy()
        for name, value in keep.items():
            self._keep(name, value.double().cpu().numpy())
        top = np.maximum.reduceat(own, classes.first, axis=1)
        shift = np.where(np.isfinite(top), top, 0)
        own -= np.repeat(shift, classes.sizes, axis=1)
        place = self._first(own == np.repeat(top - shift, classes.sizes, axis=1))
        self._keep("best", classes.spread(top))
        self._keep("token", classes.spread(classes.tokens[place], 0))
        if self.temperature > 0:
            self._draw(part, own, shift)
        if self.needs.margin:
            others = own.copy()
            np.put_along_axis(others, place, -np.inf, axis=1)
            second = np.maximum.reduceat(others, classes.first, axis=1) + shift
            self._keep("second", classes.spread(second))
        mass = np.exp(own)
        total = np.add.reduceat(mass, classes.first, axis=1)
        with np.errstate(divide="ignore"):
            self._keep("total", classes.spread(np.log(total) + shift))
        if self.needs.entropy:
            with np.errstate(invalid="ignore"):
                surprise = np.where(mass > 0, mass * own, 0)
                inside = np.log(total) - np.add.reduceat(surprise, classes.first, axis=1) / total
            self._keep("inside", classes.spread(np.nan_to_num(inside), 0))

    def _first(self, hits: np.ndarray) -> np.ndarray:
        """(m, classes) the first place of each class that is hit."""
        places = np.where(hits, np.arange(hits.shape[1], dtype=np.int32), np.int32(hits.shape[1]))
        found = np.minimum.reduceat(places, self.classes.first, axis=1)
        return np.minimum(found, hits.shape[1] - 1)  # NaN hits nothing

    def _draw(self, part: slice, own: np.ndarray, shift: np.ndarray) -> None:
        """A token of each class, and the mass of the class at this temperature."""
        classes, cold = self.classes, max(self.temperature, COLDEST)
        mass = np.cumsum(np.exp(own.astype(np.float64) / cold), axis=1)
        last = classes.first + classes.sizes - 1
        before = np.where(classes.first > 0, mass[:, classes.first - 1], 0.0)
        own_mass = mass[:, last] - before
        target = before + self.uniform[part, None] * own_mass
        place = np.stack(
            [np.searchsorted(*both, side="right") for both in zip(mass, target, strict=True)]
        )
        place = np.clip(place, classes.first, last)
        self._keep("drawn", classes.spread(classes.tokens[place], 0))
        logits = np.take_along_axis(own, place, axis=1) + shift
        self._keep("drawn logit", classes.spread(logits))
        with np.errstate(divide="ignore"):
            self._keep("hot", classes.spread(np.log(own_mass) + shift / cold))

    def _keep(self, name: str, values: np.ndarray) -> None:
        self._read.setdefault(name, []).append(values)

    # ── the prediction ───────────────────────────────────────────────────────────────────────

    def prediction(self, free: Prediction) -> Prediction:
        """The same prediction among texts of the form; `free` is what the model says by itself.

        A committed cell is what it is. Where nothing is accepted the confidence is NaN, as where
        logits forbid every token.
        """
        found = {name: np.concatenate(parts) for name, parts in self._read.items()}
        cells, special = self.canvas.cells, self.canvas.special
        chain = self.form.chain(self.canvas)
        token, confidence = free.token.copy(), free.confidence.copy()
        eos = free.eos_probability.copy()
        known = np.flatnonzero(cells[self.wanted] != special.mask)
        token[known] = cells[self.wanted[known]]
        confidence[known], eos[known] = 1.0, token[known] == special.eos
        rows = np.flatnonzero(
            (cells[self.wanted] == special.mask) & (self.wanted < len(chain.cells.tokens))
        )
        if not len(rows):
            return replace(free, token=token, confidence=confidence, eos_probability=eos)
        at = self.wanted[rows]
        posterior = Posterior(chain, Weights(at, found["total"][rows]))
        try:
            if np.isnan(found["total"][rows]).any():
                raise LookupError
            hot = self.temperature > 0
            if hot:
                numbers = draws(self.form.params.seed, self.step, self.canvas.length)
                by, share = Posterior(chain, Weights(at, found["hot"][rows])).draw(numbers)
            else:
                by = Posterior(chain, Weights(at, found["best"][rows])).best()
        except LookupError:
            if self.is_probe:  # of a length that no text of the form has: what the model says there
                return free
            confidence[rows] = np.nan
            return replace(free, token=token, confidence=confidence, eos_probability=eos)
        total = found["total"][rows]
        chosen = found["drawn" if hot else "token"][rows, by].astype(np.int64)
        logit = found["drawn logit" if hot else "best"][rows, by]
        token[rows] = chosen
        confidence[rows] = posterior.probability(by) * np.exp(logit - total[np.arange(len(by)), by])
        end = self.form.automaton.end
        ends = posterior.probability(np.full(len(rows), end))
        with np.errstate(invalid="ignore"):
            eos[rows] = np.where(ends > 0, ends * np.exp(found["eos"][rows] - total[:, end]), 0)
        changed: dict[str, Any] = {
            "token": token,
            "confidence": confidence,
            "eos_probability": eos,
        }
        if (
            hot and free.drawn is not None
        ):  # behind the cells before it: their product is the text's
            of_class = found["drawn logit"][rows, by] / max(self.temperature, COLDEST)
            drawn = free.drawn.copy()
            drawn[rows] = share * np.exp(of_class - found["hot"][rows, by])
            changed["drawn"] = drawn
        changed |= self._further(free, found, posterior, rows)
        return replace(free, **changed)

    def _further(
        self, free: Prediction, found: dict[str, np.ndarray], posterior: Posterior, rows: np.ndarray
    ) -> dict[str, Any]:
        """What is made only where it is asked for."""
        changed: dict[str, Any] = {}
        needs, total = self.needs, found["total"][rows]
        if free.expected is not None:
            assert self.expected is not None
            by = self.form.automaton.classes[self.expected[rows]]
            known = by >= 0
            share = np.exp(found["expected"][rows] - total[np.arange(len(rows)), by])
            expected = free.expected.copy()
            expected[rows] = np.where(known, posterior.probability(np.maximum(by, 0)) * share, 0)
            changed["expected"] = expected
        if not (needs.entropy or needs.margin or needs.top):
            return changed
        of_class = posterior.probabilities()
        with np.errstate(invalid="ignore", divide="ignore"):
            best = np.nan_to_num(of_class * np.exp(found["best"][rows] - total))
            if free.entropy is not None:
                entropy = free.entropy.copy()
                between = -np.where(of_class > 0, of_class * np.log(of_class), 0).sum(1)
                entropy[rows] = between + (of_class * found["inside"][rows]).sum(1)
                changed["entropy"] = entropy
            if free.margin is not None:
                second = np.nan_to_num(of_class * np.exp(found["second"][rows] - total))
                two = np.sort(np.hstack((best, second)), axis=1)[:, -2:]
                margin = free.margin.copy()
                margin[rows] = two[:, 1] - two[:, 0]
                changed["margin"] = margin
            if free.top_token is not None and free.top_probability is not None:
                tokens, shares = free.top_token[rows], free.top_probability[rows]
                by = np.where(tokens >= 0, self.form.automaton.classes[tokens], -1)
                mass = np.take_along_axis(total, np.maximum(by, 0), axis=1)
                logit = np.log(shares) + found["whole"][rows][:, None]
                share = np.take_along_axis(of_class, np.maximum(by, 0), axis=1)
                likely = np.nan_to_num(np.where(by >= 0, share * np.exp(logit - mass), 0))
                best_tokens = found["token"][rows].astype(np.int64)
                own = np.take_along_axis(best_tokens, np.maximum(by, 0), axis=1)
                likely[own == tokens] = 0  # it stands among the best of the classes
                tokens = np.hstack((best_tokens, tokens))
                likely = np.hstack((best, likely))
                order = np.argsort(-likely, axis=1, kind="stable")[:, : free.top_token.shape[1]]
                columns = free.top_token.copy(), free.top_probability.copy()
                picked = np.take_along_axis(likely, order, axis=1)
                width = order.shape[1]
                columns[0][rows], columns[1][rows] = -1, 0.0
                columns[0][rows[:, None], np.arange(width)] = np.where(
                    picked > 0, np.take_along_axis(tokens, order, axis=1), -1
                )
                columns[1][rows[:, None], np.arange(width)] = picked
                changed["top_token"], changed["top_probability"] = columns
        return changed


def constrained(
    row: Row, asked: Asked, form: Form, own: Draws, device: torch.device
) -> Constrained | None:
    """What reads the logits of one canvas; None where they are of text that is given."""
    canvas, wanted = asked.canvas, asked.input.wanted
    if not len(wanted) or wanted[-1] >= canvas.length:
        return None
    return Constrained(
        form,
        canvas,
        wanted,
        row.canvas.step,
        float(own.temperature[0]),
        row.needs,
        own.uniform,
        asked.tokens,
        device,
        asked.is_probe,
    )
