"""Curves of a point over its seeds: means with their range, absolute and relative to the baseline's best point."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from nlq.stats.selection import GridPoint, Selection, Trace

Floats = npt.NDArray[np.float64]

TRAIN_BINS = 60
"""Per-step training losses are averaged into about so many windows over a run."""


class Curve(NamedTuple):
    """Values by step, arrays of one length: the mean over `seeds` and the smallest and largest of them.

    Losses in nats a token, gains in percent. `lost` is true where a seed diverged: the curve ends before that.
    """

    steps: Floats
    mean: Floats
    low: Floats
    high: Floats
    seeds: int
    lost: bool = False


def validation(selection: Selection, point: GridPoint) -> Curve:
    """Validation loss on the shown split, at the steps that all of the point's seeds evaluated."""
    table = _seeds(selection, point).dropna()
    return _curve(table, table, bool(point.diverged))


def gain(selection: Selection, point: GridPoint) -> Curve:
    """ΔLL in percent over the baseline's best point, paired by seed: the mean is mean(L_base - L) / mean(L_base)."""
    base, own = _seeds(selection, selection.reference), _seeds(selection, point)
    return relative(base, own, bool(point.diverged))


def relative(base: pd.DataFrame, own: pd.DataFrame, lost: bool = False) -> Curve:
    """ΔLL in percent from two tables of losses (rows: steps, columns: seeds), over the steps and seeds of both."""
    seeds = sorted(set(base.columns) & set(own.columns))
    base, own = base[seeds].dropna().align(own[seeds].dropna(), join="inner")
    each = 100 * (base - own) / base
    mean = 100 * (base - own).mean(axis=1) / base.mean(axis=1)
    return _curve(each, mean.to_frame(), lost)


def train_table(steps: pd.DataFrame, point: GridPoint, window: int) -> pd.DataFrame:
    """Training losses of a point averaged over windows of so many steps: rows by the window's middle, a column a seed.

    A window with a loss that is not finite is left out, and so is a last one that is not whole.
    """
    columns = {t.seed: _windows(steps[steps["run_id"] == t.member.run.run_id], window) for t in point.traces}
    return pd.DataFrame({seed: values for seed, values in columns.items() if len(values)})


def train_window(steps: pd.DataFrame, bins: int = TRAIN_BINS) -> int:
    """Steps in a window, so that a run has about as many as `bins`, at most; one of 1, 2, 5, 10, 20, 50, …"""
    wanted = (float(steps["step"].max()) + 1) / bins if len(steps) else 1.0
    scale = 10.0 ** math.floor(math.log10(max(wanted, 1.0)))
    return int(next(scale * k for k in (1, 2, 5, 10) if scale * k >= wanted or k == 10))


def train(table: pd.DataFrame) -> Curve:
    """The curve of a table made by `train_table`."""
    whole = table.dropna()
    return _curve(whole, whole, False)


def last_step(curves: Iterable[Curve]) -> float:
    """The last step of any curve; 0 when all are empty."""
    return max((float(c.steps[-1]) for c in curves if len(c.steps)), default=0.0)


def limits(curves: Iterable[Curve], after: float, include: tuple[float, ...] = ()) -> tuple[float, float] | None:
    """A y range that holds every value from step `after` on, with a margin; None when there is no value."""
    parts = [part[c.steps >= after] for c in curves for part in (c.low, c.high)]
    values = np.concatenate([*parts, np.array(include)])
    values = values[np.isfinite(values)]
    if values.size == 0:
        return None
    low, high = float(values.min()), float(values.max())
    margin = 0.07 * (high - low) or 0.01 * abs(high) or 0.1
    return low - margin, high + margin


def _seeds(selection: Selection, point: GridPoint) -> pd.DataFrame:
    """Losses of the seeds that count (of all, where none does): rows by step, a column a seed, NaN where missing."""
    traces = [t for t in selection.counted(point) if selection.at.show_split in t.losses] or point.traces
    split = selection.at.show_split
    return pd.DataFrame({t.seed: _finite(t, split) for t in traces if t.losses.get(split)})


def _finite(trace: Trace, split: str) -> pd.Series:
    losses = {step: loss for step, loss in sorted(trace.losses[split].items()) if math.isfinite(loss)}
    return pd.Series(losses, dtype=np.float64)


def _windows(steps: pd.DataFrame, window: int) -> pd.Series:
    steps = steps.sort_values("step")
    losses = steps["loss_nats"].to_numpy(dtype=np.float64)
    first = steps["step"].to_numpy(dtype=np.float64)
    whole = len(losses) // window * window
    means = losses[:whole].reshape(-1, window).mean(axis=1)
    middles = first[:whole].reshape(-1, window).mean(axis=1)
    return pd.Series(means, index=middles, dtype=np.float64).replace([np.inf, -np.inf], np.nan).dropna()


def _curve(each: pd.DataFrame, mean: pd.DataFrame, lost: bool) -> Curve:
    if each.empty:
        empty = np.zeros(0)
        return Curve(empty, empty, empty, empty, 0, lost)
    values = each.to_numpy(dtype=np.float64)
    centre = mean.mean(axis=1).to_numpy(dtype=np.float64)
    steps = each.index.to_numpy(dtype=np.float64)
    return Curve(steps, centre, values.min(axis=1), values.max(axis=1), values.shape[1], lost)
