"""The statistics of evaluations: means with their standard errors, and paired comparisons."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over samples, and its standard error (None for a single sample)."""

    mean: float
    error: float | None


def mean_of(values: Sequence[float]) -> Estimate:
    if len(values) < 2:
        return Estimate(float(values[0]), None)
    return Estimate(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)))


def ratio_of_means(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """mean(above) / mean(below) of the same samples; the error is that of its linearisation."""
    base = mean_of(below).mean
    if base == 0:
        return Estimate(0.0, None)
    ratio = mean_of(above).mean / base
    error = mean_of([a - ratio * b for a, b in zip(above, below, strict=True)]).error
    return Estimate(ratio, None if error is None else error / base)


def sign_test(wins: int, losses: int) -> float:
    """Exact two-sided p that wins and losses are equally likely; ties do not count.

    On right and wrong answers of the same samples this is McNemar's exact test.
    """
    count = wins + losses
    tail = sum(math.comb(count, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**count)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """95% of the mean when the samples are drawn anew: the bootstrap, paired if these are gains."""
    return ratio_interval(values, [1.0] * len(values))


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """95% of mean(above) / mean(below) when the samples are drawn anew, both of a pair together."""
    rng = np.random.default_rng(0)
    pairs = np.stack([np.asarray(above, float), np.asarray(below, float)])
    count = pairs.shape[1]
    ratios = []
    for _ in range(RESAMPLES // 500):  # in portions: all at once would take a gigabyte
        sums = pairs[:, rng.integers(0, count, (500, count))].sum(axis=2)  # (2, 500)
        ratios.append(sums[0] / np.maximum(sums[1], 1e-12))
    low, high = np.quantile(np.concatenate(ratios), [0.025, 0.975])
    return float(low), float(high)
