"""The statistics of evaluations: means with their standard errors, and paired comparisons."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
Z = statistics.NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over samples, its standard error (None for a single sample), and of shares a 95%
    interval, which is never a point: ten right answers of ten do not prove that all would be."""

    mean: float
    error: float | None
    interval: tuple[float, float] | None = None


def mean_of(values: Sequence[float]) -> Estimate:
    if len(values) < 2:
        return Estimate(float(values[0]), None)
    return Estimate(statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values)))


def share_of(values: Sequence[float]) -> Estimate:
    """A mean of values in [0, 1], such as right and wrong, with Wilson's interval.

    Averages over repeats vary less than single answers, and count as so many more samples.
    """
    mean = mean_of(values)
    share, count = min(1.0, max(0.0, mean.mean)), float(len(values))
    if mean.error:
        count = max(count, 1 + share * (1 - share) / mean.error**2)
    shrunk = 1 + Z**2 / count
    centre = (share + Z**2 / (2 * count)) / shrunk
    half = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2)) / shrunk
    return Estimate(mean.mean, mean.error, (max(0.0, centre - half), min(1.0, centre + half)))


def share_change(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """The difference of two shares of the same samples, with Newcombe's interval (method 10)."""
    one, other = share_of(ours), share_of(theirs)
    assert one.interval is not None and other.interval is not None
    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    count = len(a)
    together = count * float(((a - a.mean()) * (b - b.mean())).sum())  # of a 2×2 table: ad - bc
    spread = count**2 * float(a.std() * b.std())
    together = max(together - count / 2, 0.0) if together > 0 else together
    correlation = together / spread if spread > 0 else 0.0
    below, above = one.mean - one.interval[0], one.interval[1] - one.mean
    below_other, above_other = other.mean - other.interval[0], other.interval[1] - other.mean

    def width(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x**2 - 2 * correlation * x * y + y**2))

    gain = one.mean - other.mean
    interval = gain - width(below, above_other), gain + width(above, below_other)
    return Estimate(gain, mean_of((a - b).tolist()).error, interval)


def pass_at(right: int, asked: int, k: int) -> float:
    """How probably one of k answers is right, estimated without bias from `right` of `asked`."""
    return 1.0 - math.comb(asked - right, k) / math.comb(asked, k)


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


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> tuple[float, float] | None:
    """95% of mean(above) / mean(below) when the samples are drawn anew, both of a pair together:
    the bootstrap. None where that tells nothing: all ratios are the same, or there is only one."""
    rng = np.random.default_rng(0)
    pairs = np.stack([np.asarray(above, float), np.asarray(below, float)])
    count = pairs.shape[1]
    ratios = []
    for _ in range(RESAMPLES // 500):  # in portions: all at once would take a gigabyte
        sums = pairs[:, rng.integers(0, count, (500, count))].sum(axis=2)  # (2, 500)
        ratios.append(sums[0] / np.maximum(sums[1], 1e-12))
    low, high = np.quantile(np.concatenate(ratios), [0.025, 0.975])
    return (float(low), float(high)) if high - low > 1e-9 * abs(high) else None
