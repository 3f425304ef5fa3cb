"""From traces to curves: how a number behaves over the steps, averaged over samples.

A sample leaves the average when its text is complete, for then it has no ρ; a curve ends where
fewer than half of its samples still run, since a few stragglers say nothing about the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rho_eos.evals.runs.run_folder import Line

BINS = 50


@dataclass(frozen=True, slots=True)
class Curve:
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray  # quartiles over samples
    high: np.ndarray


def over_steps(lines: Sequence[Line], field: str) -> Curve:
    """A field of the trace against the step, while at least half of the samples run."""
    series = [_series(line, field) for line in lines]
    longest = max(len(each) for each in series)
    grid = np.full((len(series), longest), np.nan)
    for row, each in zip(grid, series, strict=True):
        row[: len(each)] = each
    running = np.sum(~np.isnan(grid), axis=0)
    kept = grid[:, running >= max(1, len(series) / 2)]
    return _curve(np.arange(kept.shape[1]), kept)


def over_progress(lines: Sequence[Line], field: str) -> Curve:
    """The same against the share of its steps that a sample has made: all samples, all the way."""
    x = np.linspace(0, 1, BINS)
    series = [_series(line, field) for line in lines]
    grid = [np.interp(x, np.linspace(0, 1, len(each)), each) for each in series]
    return _curve(100 * x, np.array(grid))


def _series(line: Line, field: str) -> np.ndarray:
    values = [record[field] for record in line["trace"]]
    return np.array([value for value in values if value is not None], dtype=float)


def _curve(x: np.ndarray, grid: np.ndarray) -> Curve:
    low, high = np.nanquantile(grid, [0.25, 0.75], axis=0)
    return Curve(x, np.nanmean(grid, axis=0), low, high)
