"""A strip of values for each arm, one row an arm: every run a mark, the mean a bar, with its interval over runs."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from nlq.plots._layout import Key, key_of
from nlq.plots._lines import DOTS, diverged_handle, sign, zero_handle
from nlq.plots._style import GREY, ArmStyle, arm_styles, lighter, panels, printable, shortened
from nlq.stats.seeds import Mean

ROW_INCHES, LEAST_INCHES = 0.36, 0.6
LABEL_CHARACTERS = 22
LOST_SHARE = 0.07
"""Share of the axis, at its right end, that is kept for runs whose loss is gone."""
STAGGER = 0.2
"""Rows over which a row's marks are spread, above and below, so that they do not cover each other."""


class Row(NamedTuple):
    """An arm: finite values by a key of the run, their mean, how many runs are lost, and words for below the label.

    Values whose key is in `hollow` are drawn hollow.
    """

    arm: str
    label: str
    values: Mapping[int, float]
    mean: Mean | None
    lost: int
    note: str
    hollow: frozenset[int] = frozenset()

    @property
    def centre(self) -> float | None:
        """The mean, None where there is none or a run is lost."""
        return self.mean.mean if self.mean and math.isfinite(self.mean.mean) else None


def strip(figure: Figure, rows: Sequence[Row], baseline: str, unit: float = 1.0, *, linked: bool = False) -> Axes:
    """One panel, rows from top to bottom, values divided by `unit`; `linked` joins equal keys of neighbouring rows."""
    (axes,) = panels(figure, 1)
    styles = arm_styles([row.arm for row in rows], baseline)
    _dress(axes, rows, unit)
    reference = next((row.centre for row in rows if row.arm == baseline), None)
    if reference is not None:
        axes.axvline(reference / unit, color=GREY, linewidth=0.9, linestyle=DOTS, zorder=1.5)
    if linked:
        _link(axes, rows, unit)
    for index, row in enumerate(rows):
        _draw(axes, index, row, styles[row.arm], unit)
    return axes


def height(rows: Sequence[Row]) -> float:
    """Inches that the panel needs."""
    return max(LEAST_INCHES, ROW_INCHES * len(rows))


def signs(rows: Sequence[Row], one: str, hollow: str = "") -> Key:
    """What the marks mean: `one` value, and a `hollow` one."""
    return key_of([
        (any(row.values.keys() - row.hollow for row in rows), sign("o", 3.2), one),
        (any(row.hollow for row in rows), sign("o", 3.2, hollow=True), hollow),
        (any(row.mean and row.mean.n > 1 for row in rows), sign("|", 9), "mean"),
        (any(row.mean and row.mean.interval for row in rows), sign("", stroke="solid"), "95 % interval of the mean"),
        (True, zero_handle(), "baseline's mean"),
        (any(row.lost for row in rows), diverged_handle(), "diverged"),
    ])  # fmt: skip


def cut(axes: Axes, rows: Sequence[Row], unit: float = 1.0) -> str:
    """A line for the footer where an interval reaches beyond the axis, which holds the values."""
    low, high = axes.get_xlim()
    ends = [row.mean.interval for row in rows if row.mean and row.mean.interval]
    beyond = any(one.low / unit < low or one.high / unit > high for one in ends)
    return "\nan interval reaches beyond the axis" if beyond else ""


def _dress(axes: Axes, rows: Sequence[Row], unit: float) -> None:
    """Labels with notes on the left, and a range that holds every value; a wide interval may leave it."""
    low, high = _range(rows, unit)
    margin = 0.06 * (high - low) or 0.01 * abs(high) or 0.1
    lost = LOST_SHARE * (high - low + 2 * margin) * any(row.lost for row in rows)
    axes.set_xlim(low - margin, high + margin + lost)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.yaxis.set_major_locator(FixedLocator(list(range(len(rows)))))
    axes.set_yticklabels([f"{shortened(printable(row.label), LABEL_CHARACTERS)}\n{row.note}" for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(False, axis="y")
    axes.grid(True, axis="x", color="#E6E6E6", linewidth=0.5)


def _range(rows: Sequence[Row], unit: float) -> tuple[float, float]:
    """All values, and intervals so far as they do not make them less than a third of the axis."""
    values = [value / unit for row in rows for value in row.values.values()]
    low, high = min(values), max(values)
    ends = [end / unit for row in rows if row.mean and row.mean.interval for end in row.mean.interval]
    return max(min([low, *ends]), 2 * low - high), min(max([high, *ends]), 2 * high - low)


def _places(index: int, row: Row) -> dict[int, float]:
    """The height of each mark: spread over the row in the order of the keys."""
    count = len(row.values)
    wide = 2 * STAGGER / max(count - 1, 1)
    return {key: index + (i * wide - STAGGER if count > 1 else 0.0) for i, key in enumerate(row.values)}


def _link(axes: Axes, rows: Sequence[Row], unit: float) -> None:
    for (index, above), (_, below) in pairwise(enumerate(rows)):
        ours, theirs = _places(index, above), _places(index + 1, below)
        for key in ours.keys() & theirs.keys():
            x = [above.values[key] / unit, below.values[key] / unit]
            axes.plot(x, [ours[key], theirs[key]], color="#BBBBBB", linewidth=0.5, zorder=1.2)


def _draw(axes: Axes, index: int, row: Row, style: ArmStyle, unit: float) -> None:
    places = _places(index, row)
    for key, value in row.values.items():
        face = "white" if key in row.hollow else lighter(style.colour, 0.25)
        axes.plot(
            value / unit, places[key], marker="o", markersize=3.2, markerfacecolor=face,
            markeredgecolor=style.colour, markeredgewidth=0.7, linestyle="none", zorder=3,
        )  # fmt: skip
    if row.mean and row.mean.interval:
        low, high = (end / unit for end in row.mean.interval)
        axes.plot([low, high], [index, index], color=style.colour, linewidth=0.9, zorder=2)
    if row.centre is not None and len(row.values) > 1:
        axes.plot(
            row.centre / unit, index, marker="|", markersize=11, markeredgewidth=1.5, color=style.colour, zorder=4
        )
    if row.lost:
        axes.plot(
            0.975, index, marker="x", markersize=5, markeredgewidth=1.4, color=style.colour, linestyle="none",
            transform=axes.get_yaxis_transform(), clip_on=False,
        )  # fmt: skip
