"""The curves of every run, as the database has them: evaluations all, training steps thinned in a stated way."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nlq.core.imported import BATCH, TRAIN
from nlq.stats.cost import clock
from nlq.stats.effects import delta_ll
from nlq.stats.printing import settings
from nlq.stats.selection import GridPoint, Selection, Trace
from nlq.stats.source import Source

MOST_POINTS = 2_000
"""So many training steps of one run are drawn at most."""

MOST_ON_THE_PAGE = 100_000
"""So many training steps of all runs together."""

GAIN = "gain"
"""The name of the series that is no loss."""

NAMES: Mapping[str, str] = {
    "confirm": "Validation loss, split confirm (nats a token)",
    "val": "Validation loss (nats a token)",
    "select": "Validation loss, split select (nats a token)",
    TRAIN: "Loss on training text (nats a token)",
    BATCH: "Loss of training batches (nats a token)",
    GAIN: "ΔLL over the baseline's best point, same seed (%)",
}
"""What may be drawn, the shown split first."""


class Series(NamedTuple):
    """Values by step, `seconds` those of the training steps before; None where one is not known or not finite."""

    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    seconds: tuple[float | None, ...]


class Line(NamedTuple):
    """One run; `every` says that each so-many-th training step is drawn, and the last."""

    run_id: str
    arm: str
    label: str
    point: str
    seed: int
    best: bool
    diverged: bool
    tokens_per_step: int | None
    flops_per_token: int | None
    every: int
    series: Mapping[str, Series]


def lines(source: Source, selection: Selection) -> tuple[Line, ...]:
    """Every run with its curves, in the order of the sweep."""
    most = max(2, min(MOST_POINTS, MOST_ON_THE_PAGE // len(selection.traces())))
    return tuple(
        _line(source, selection, point, trace, most)
        for points in selection.points.values()
        for point in points
        for trace in point.traces
    )


def thinned(found: Sequence[Line]) -> str:
    """What was left out, in a sentence."""
    steps = sorted({line.every for line in found})
    if steps[-1] == 1:
        return "Every evaluation and every training step of every run is drawn; nothing is averaged or smoothed."
    few, most = min(step for step in steps if step > 1), steps[-1]
    every = f"one in {most}" if few == most else f"one in {few} to one in {most}"
    return (
        f"Every evaluation is drawn; of the steps of long trainings {every} and the last, to keep the page light. "
        "Nothing is averaged or smoothed; `nlq export steps` has them all."
    )


def _line(source: Source, selection: Selection, point: GridPoint, trace: Trace, most: int) -> Line:
    run = trace.member.run
    frame = source.steps([run.run_id])
    clock = _clock(frame)
    every = max(1, math.ceil(len(frame) / most))
    series = {split: _evaluations(losses, clock) for split, losses in trace.losses.items()}
    if len(frame):
        series[BATCH] = _training(frame, clock, every)
    if gain := _gain(selection, point, trace, clock):
        series[GAIN] = gain
    return Line(
        run.run_id, point.arm, point.label, settings(point.settings), trace.seed,
        point is selection.best[point.arm], trace.diverged, run.spec.get("train", {}).get("batch_tokens"),
        run.flops_per_token, every, series,
    )  # fmt: skip


def _clock(frame: pd.DataFrame) -> tuple[float, ...]:
    """Seconds spent in training before each step, from step 0 on; nothing where no step was timed."""
    spent = clock(frame)
    return tuple(np.round(spent, 4).tolist()) if len(spent) > 1 else ()


def _at(clock: Sequence[float], step: int) -> float | None:
    return clock[step] if step < len(clock) else None


def _evaluations(losses: Mapping[int, float], clock: Sequence[float]) -> Series:
    return _series(((step, loss) for step, loss in sorted(losses.items())), clock)


def _training(frame: pd.DataFrame, clock: Sequence[float], every: int) -> Series:
    kept = frame.iloc[sorted({*range(0, len(frame), every), len(frame) - 1})]
    return _series(
        ((int(step), float(loss)) for step, loss in zip(kept["step"], kept["loss_nats"], strict=True)), clock
    )


def _gain(selection: Selection, point: GridPoint, trace: Trace, clock: Sequence[float]) -> Series | None:
    """None of the reference itself, and where the reference has no such seed."""
    split = selection.at.show_split
    base = next((t.losses.get(split, {}) for t in selection.reference.traces if t.seed == trace.seed), {})
    own = trace.losses.get(split, {})
    if point is selection.reference or not base.keys() & own.keys():
        return None
    return _series(((step, 100 * delta_ll(own[step], base[step])) for step in sorted(base.keys() & own.keys())), clock)


def _series(pairs: Iterator[tuple[int, float]], clock: Sequence[float]) -> Series:
    known = [(step, value if math.isfinite(value) else None, _at(clock, step)) for step, value in pairs]
    steps, values, seconds = zip(*known, strict=True) if known else ((), (), ())
    return Series(steps, values, seconds)
