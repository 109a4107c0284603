"""Means over seeds, and differences paired by seed, with Student's t intervals (METHOD 4.3 and 4.5)."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import stats

from nlq.stats.effects import Interval


class Mean(NamedTuple):
    """A mean over `n` seeds. `sd` (n - 1 in the denominator) and `interval` are None where n is 1."""

    mean: float
    sd: float | None
    n: int
    interval: Interval | None


def summarise(values: Iterable[float], confidence: float = 0.95) -> Mean | None:
    """Mean, sd and the t interval of the mean; None when there is no value.

    A value that is not finite (a diverged run counts as +inf) makes the mean +inf, without sd or interval.
    """
    x = np.fromiter(values, dtype=np.float64)
    if x.size == 0:
        return None
    if not np.isfinite(x).all():
        return Mean(math.inf, None, int(x.size), None)
    if x.size == 1:
        return Mean(float(x[0]), None, 1, None)
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    half = student_t(x.size, confidence) * sd / math.sqrt(x.size)
    return Mean(mean, sd, int(x.size), Interval(mean - half, mean + half))


def student_t(n: int, confidence: float = 0.95) -> float:
    """Standard errors on each side of a mean of `n` values, two or more, that hold it with this confidence."""
    return float(stats.t.ppf(0.5 + confidence / 2, n - 1))


def paired_difference(
    baseline: Mapping[int, float], other: Mapping[int, float], confidence: float = 0.95
) -> Mean | None:
    """δ = L_base - L over the seeds that both have, in the unit of the inputs.

    None when they share no seed, or when one of the shared seeds diverged on either side.
    """
    common = sorted(baseline.keys() & other.keys())
    deltas = [baseline[seed] - other[seed] for seed in common]
    return summarise(deltas, confidence) if all(map(math.isfinite, deltas)) else None


def ppx_interval(delta_nats: Interval) -> Interval:
    """ΔPPX = 1 - exp(-δ) at both ends of δ's interval; the map is increasing, so the ends stay in order."""
    return Interval(-math.expm1(-delta_nats.low), -math.expm1(-delta_nats.high))


def ll_interval(delta_nats: Interval, baseline_nats: float) -> Interval:
    """ΔLL = δ / L_base at both ends of δ's interval, L_base taken as known (METHOD 4.5: SE ≈ SE_δ / L_base)."""
    return Interval(delta_nats.low / baseline_nats, delta_nats.high / baseline_nats)
