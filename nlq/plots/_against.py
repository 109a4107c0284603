"""Validation loss against what training cost: the shared part of loss-vs-flops and loss-vs-time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots._curves import Curve, Floats, last_step, limits, validation
from nlq.plots._layout import Key, finish, key_of
from nlq.plots._lines import DOTS, diverged_handle, draw_curve, handle, sign
from nlq.plots._style import GREY, arm_styles, panels
from nlq.plots._words import footer, suffix
from nlq.stats.selection import GridPoint, Selection

PANEL_INCHES = 2.3
EARLY = 0.2
"""Share of the cheapest arm's cost, from the start, that does not set the range of the y axis."""

Cost = Callable[[GridPoint, Sequence[float]], Floats | None]
"""What so many updates of a point cost; None where that is not known."""


class Line(NamedTuple):
    """An arm at its best point; the curve's `steps` are costs, not updates. Empty where the cost is not known."""

    arm: str
    label: str
    loss: Curve


class Against(NamedTuple):
    """The data of a figure of loss against cost."""

    baseline: str
    lines: tuple[Line, ...]
    footer: str


class Axis(NamedTuple):
    """The x axis: what costs are divided by, and its label."""

    unit: float
    label: str


def gather(selection: Selection, cost: Cost, lack: str, empty: NlqError) -> Against:
    """Each arm's curve over its cost; arms without are named in the footer as `lack` ("FLOPs not known").

    Raises `empty` where there is no curve at all.
    """
    lines = tuple(_line(selection, point, cost) for point in selection.best.values())
    if not any(map(_drawn, lines)):
        raise empty
    missing = [point.label for point, line in zip(selection.best.values(), lines, strict=True) if not _drawn(line)]
    told = footer(selection, any(line.loss.seeds > 1 for line in lines))
    told += "\ncompare ends: before its end a curve has not decayed"
    return Against(selection.sweep.baseline, lines, told + (f"\n{lack}: {', '.join(missing)}" if missing else ""))


def furthest(data: Against) -> float:
    """The largest cost of any curve."""
    return last_step(line.loss for line in data.lines)


def draw(data: Against, figure: Figure, axis: Axis) -> None:
    """One panel; the dotted line is where the baseline ends."""
    (axes,) = panels(figure, 1)
    shown = [line for line in data.lines if _drawn(line)]
    styles = arm_styles([line.arm for line in data.lines], data.baseline)
    for line in shown:
        draw_curve(axes, line.loss, styles[line.arm], axis.unit)
    ends = [line.loss.mean[-1] for line in shown if line.arm == data.baseline and not line.loss.lost]
    for end in ends:
        axes.axhline(end, color=GREY, linewidth=0.9, linestyle=DOTS, zorder=1.5)
    cheapest = min(float(line.loss.steps[-1]) for line in shown)
    span = limits([line.loss for line in shown], EARLY * cheapest)
    if span:
        axes.set_ylim(*span)
    axes.set_xlim(0, 1.015 * furthest(data) / axis.unit or 1)
    axes.set_xlabel(axis.label, fontsize=8)
    axes.set_ylabel("Validation loss\n(nats a token)", fontsize=8)
    steep = any(line.loss.mean.max() > axes.get_ylim()[1] for line in shown)
    told = data.footer + ("\nthe steep start of training lies above the axis" if steep else "")
    keys = [
        Key([handle(styles[line.arm]) for line in shown], [line.label for line in shown]),
        _signs(shown, bool(ends)),
    ]
    finish(figure, [axes], [PANEL_INCHES], keys, told)


def _line(selection: Selection, point: GridPoint, cost: Cost) -> Line:
    curve = validation(selection, point)
    costs = cost(point, list(curve.steps)) if len(curve.steps) else None
    curve = curve._replace(steps=costs) if costs is not None else curve._replace(steps=curve.steps[:0])
    return Line(point.arm, f"{point.label}{suffix(selection, point)}", curve)


def _drawn(line: Line) -> bool:
    return len(line.loss.steps) > 0


def _signs(shown: Sequence[Line], has_end: bool) -> Key:
    return key_of([
        (has_end, sign("", stroke=DOTS), "where the baseline ends"),
        (any(line.loss.lost for line in shown), diverged_handle(), "diverged"),
    ])  # fmt: skip
