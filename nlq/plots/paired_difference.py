"""Each arm against the baseline on the same batches, step by step; below, the same curves unpaired."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots._curves import Curve, last_step, limits, train, train_table, train_window
from nlq.plots._layout import Key, finish
from nlq.plots._lines import handle, zero_line
from nlq.plots._style import ArmStyle, arm_styles, panels, printable, shortened, step_unit
from nlq.plots._words import footer
from nlq.stats.compare import compare
from nlq.stats.printing import plural
from nlq.stats.selection import GridPoint, Selection, load
from nlq.stats.source import Source
from nlq.stats.stepwise import Band, paired_band

TITLE = "training loss below the baseline's on the same batches, step by step, with a 95 % band over seeds"

BINS = 1000
"""Longer runs are drawn as means over windows, as many as the picture can show; the footer says over how many steps."""
EARLY = 0.15
"""Share of training, from the start, that does not set the range of the y axes: differences are large there."""
ROOM = 1 / 3
"""Share of an axis that the means keep where a band is wider than it."""
FLATTENED = 4.0
"""Arms share one range of δ unless it were so many times what one of them needs."""
GAP, LOSS_INCHES = 0.26, 1.2
TITLE_CHARACTERS = 50


class Line(NamedTuple):
    """An arm: δ over its common seeds with the baseline, and the mean of its own losses over those."""

    arm: str
    label: str
    delta: Band
    loss: Curve


class PairedDifference(NamedTuple):
    """The figure's data; `base` are the baseline's own losses, all over `window` steps."""

    baseline: str
    label: str
    base: Curve
    lines: tuple[Line, ...]
    window: int
    footer: str


def read(reader: Source, sweep: str | None = None) -> PairedDifference:
    """Read the training losses of each arm that read the baseline's batches.

    Raises NlqError when there is no such arm or nothing is recorded of them, or as `load` does.
    """
    selection = load(reader, sweep)
    reference = selection.reference
    others = [p for p in selection.best.values() if p is not reference]
    matched = [p for p in others if compare(selection, p).matched]
    steps = reader.steps([t.member.run.run_id for p in (reference, *matched) for t in p.traces])
    window = train_window(steps, BINS)
    base = train_table(steps, reference, window)
    found = [_line(steps, point, base, window) for point in matched]
    lines = tuple(line for line in found if len(line.delta.steps))
    if not lines:
        raise NlqError(*_lack(selection, others, matched))
    left_out = [p.label for p in others if p.arm not in {line.arm for line in lines}]
    told = _footer(selection, lines, window, left_out)
    return PairedDifference(selection.sweep.baseline, reference.label, train(base), lines, window, told)


def draw(data: PairedDifference, figure: Figure) -> None:
    """A panel for each arm's δ, and one for all losses, over one axis of steps."""
    *above, below = panels(figure, len(data.lines) + 1)
    end = last_step([data.base, *(line.loss for line in data.lines)])
    unit, label = step_unit(end)
    styles = arm_styles([data.baseline, *(line.arm for line in data.lines)], data.baseline)
    ranges = [_range(line.delta, EARLY * end) for line in data.lines]
    common = _common(ranges)
    for axes, line, own in zip(above, data.lines, ranges, strict=True):
        _draw_delta(axes, line, data.label, styles[line.arm], unit)
        axes.set_ylim(*(common or own))
    _draw_losses(below, data, styles, unit, EARLY * end)
    below.set_xlabel(label, fontsize=8)
    below.set_xlim(0, 1.015 * end / unit or 1)
    names = Key(
        [handle(styles[arm], marked=False) for arm in styles], [data.label, *(line.label for line in data.lines)]
    )
    heights = [max(0.55, min(1.2, 3 / len(above)))] * len(above) + [LOSS_INCHES]
    told = data.footer + ("" if common else "\nscales of δ differ from arm to arm")
    finish(figure, [*above, below], heights, [names], told, GAP)


def _line(steps: pd.DataFrame, point: GridPoint, base: pd.DataFrame, window: int) -> Line:
    own = train_table(steps, point, window)
    return Line(point.arm, point.label, paired_band(base, own), train(own))


def _range(band: Band, after: float) -> tuple[float, float]:
    """The means after the start with zero, and the band around them so far as they keep `ROOM` of the axis."""
    late = band.steps >= min(after, band.steps[-1])
    low, high = min(float(band.mean[late].min()), 0.0), max(float(band.mean[late].max()), 0.0)
    wide = (high - low) or 0.01
    room = wide * (1 / ROOM - 1) / 2
    bottom = float(np.fmin(band.low, band.mean)[late].min())  # without an interval the mean itself
    top = float(np.fmax(band.high, band.mean)[late].max())
    return max(min(bottom, low), low - room) - 0.1 * wide, min(max(top, high), high + room) + 0.1 * wide


def _common(ranges: list[tuple[float, float]]) -> tuple[float, float] | None:
    """One range for all arms, so that they can be compared by eye; None where it would flatten one of them."""
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    narrowest = min(high - low for low, high in ranges)
    return (low, high) if high - low <= FLATTENED * narrowest else None


def _draw_delta(axes: Axes, line: Line, baseline: str, style: ArmStyle, unit: float) -> None:
    band = line.delta
    x = band.steps / unit
    zero_line(axes)
    axes.fill_between(x, band.low, band.high, color=style.colour, alpha=0.18, linewidth=0, zorder=2)
    axes.plot(x, band.mean, color=style.colour, linewidth=0.7, zorder=3)
    title = f"{printable(baseline)} − {printable(line.label)}, {plural(band.seeds, 'seed')}"
    axes.set_title(shortened(title, TITLE_CHARACTERS), loc="left", fontsize=7, pad=2.5)
    axes.set_ylabel("δ (nats)", fontsize=8)


def _draw_losses(axes: Axes, data: PairedDifference, styles: dict[str, ArmStyle], unit: float, after: float) -> None:
    """The curves that the differences are of: what they have in common hides how they differ."""
    curves = {data.baseline: data.base, **{line.arm: line.loss for line in data.lines}}
    for arm, curve in curves.items():
        axes.plot(curve.steps / unit, curve.mean, color=styles[arm].colour, linewidth=0.5, alpha=0.8)
    means = [curve._replace(low=curve.mean, high=curve.mean) for curve in curves.values()]
    axes.set_title("Not paired: mean training losses", loc="left", fontsize=7, pad=2.5)
    axes.set_ylabel("Loss (nats)", fontsize=8)
    span = limits(means, after)
    if span:
        axes.set_ylim(*span)


def _footer(selection: Selection, lines: tuple[Line, ...], window: int, left_out: list[str]) -> str:
    told = [
        footer(selection, False),
        "δ = L_baseline − L of the same training batches, above 0 where the arm is better",
    ]
    told.append("raw, every step" if window == 1 else f"means over {window:,} steps, not smoothed further")
    if any(line.delta.seeds > 1 for line in lines):
        told.append("bands: 95 % interval of the mean over seeds, each step by itself; where wide they leave the axis")
    if left_out:
        told.append(f"left out, no common batches or no training losses recorded: {', '.join(left_out)}")
    return "\n".join(told)


def _lack(selection: Selection, others: list[GridPoint], matched: list[GridPoint]) -> tuple[str, str]:
    name = f'sweep "{selection.sweep.name}"'
    if not others:
        return f"{name}: the baseline is the only arm, so there is nothing to pair it with", "add an arm to the spec"
    if not matched:
        return (
            f"{name}: no arm is known to have read the baseline's batches (of imported runs that is never known)",
            "nlq plot training-dynamics",
        )
    return f"{name}: no training loss of a seed that an arm and the baseline share", "nlq status"
