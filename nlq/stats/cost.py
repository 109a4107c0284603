"""What training cost: FLOPs, recorded seconds, and tokens a second of a sweep's runs."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from nlq.stats.paired import Floats
from nlq.stats.seeds import Mean, summarise
from nlq.stats.selection import GridPoint, Selection, Trace


def training_flops(point: GridPoint, steps: Sequence[float]) -> Floats | None:
    """FLOPs of so many updates: FLOPs a token, counted from the model, times tokens a step; None where not known."""
    run = point.traces[0].member.run
    tokens = run.spec.get("train", {}).get("batch_tokens")
    if run.flops_per_token is None or tokens is None:
        return None
    return np.asarray(steps, dtype=float) * float(run.flops_per_token) * float(tokens)


def clock(updates: pd.DataFrame) -> Floats:
    """Seconds that one run had spent on updates before each step, from step 0 on, evaluations not counted.

    `updates` has columns step and step_ms, by step. It ends where a step is missing or was not timed.
    """
    steps, spent = updates["step"].to_numpy(), updates["step_ms"].to_numpy(dtype=float)
    known = (steps == np.arange(len(steps))) & np.isfinite(spent)
    end = len(known) if known.all() else int(np.argmin(known))
    return np.concatenate([[0.0], np.cumsum(spent[:end])]) / 1000


def training_seconds(updates: pd.DataFrame, traces: Iterable[Trace], steps: Sequence[float]) -> Floats | None:
    """Seconds that the first `steps` updates took, evaluations not counted: the mean over the runs that recorded them.

    `updates` has columns run_id, step and step_ms. None where no run recorded as many updates as are asked for.
    """
    wanted, kept = np.asarray(steps, dtype=float), []
    for trace in traces:
        spent = clock(updates[updates["run_id"] == trace.member.run.run_id].sort_values("step"))
        if wanted.size and wanted.max() < len(spent):
            kept.append(spent[wanted.astype(int)])
    return np.mean(kept, axis=0) if kept else None


def speeds(selection: Selection, arm: str) -> list[float]:
    """Tokens a second of the arm's runs that recorded them, all points, in the order of the sweep."""
    runs = (trace.member.run for point in selection.points[arm] for trace in point.traces)
    return [run.tokens_per_s for run in runs if run.tokens_per_s]


def speed(selection: Selection, arm: str) -> Mean | None:
    """Mean tokens a second over the arm's runs; None where none recorded them."""
    return summarise(speeds(selection, arm))


def relative_speed(selection: Selection, arm: str) -> float | None:
    """The arm's mean tokens a second over the baseline's."""
    own, base = speed(selection, arm), speed(selection, selection.sweep.baseline)
    return own.mean / base.mean if own and base else None
