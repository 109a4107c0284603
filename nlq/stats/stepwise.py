"""The difference between two arms at every step, on the same batches (METHOD 4.7)."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from nlq.stats.paired import Floats
from nlq.stats.seeds import student_t


class Band(NamedTuple):
    """δ = L_base - L by step, nats a token: the mean over `seeds` and the 95 % interval of it, by Student's t.

    Arrays of one length; without an interval (one seed) `low` and `high` are NaN.
    """

    steps: Floats
    mean: Floats
    low: Floats
    high: Floats
    seeds: int


def paired_band(base: pd.DataFrame, other: pd.DataFrame) -> Band:
    """From losses in nats a token (rows: steps, columns: seeds), over the seeds and the steps that both have in full.

    Equal seeds must have read the same batches: what these have in common then cancels. Each step has its own
    interval; neighbouring ones are not independent, and together they do not hold with 95 %.
    """
    seeds = sorted(set(base.columns) & set(other.columns))
    each = (base[seeds] - other[seeds]).dropna()
    values_TS = each.to_numpy(dtype=np.float64)
    steps = each.index.to_numpy(dtype=np.float64)
    if not values_TS.size:
        return Band(*(np.zeros(0),) * 4, len(seeds))
    mean = values_TS.mean(axis=1)
    if len(seeds) < 2:
        return Band(steps, mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan), len(seeds))
    half = student_t(len(seeds)) * values_TS.std(axis=1, ddof=1) / np.sqrt(len(seeds))
    return Band(steps, mean, mean - half, mean + half, len(seeds))
