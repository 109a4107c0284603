"""How much the peak learning rate matters to each arm: the bowls, their lowest points, and what diverged."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots._layout import Key, finish, key_of
from nlq.plots._lines import aside, diverged_handle, handle, sign
from nlq.plots._style import ArmStyle, arm_styles, around, dress_log, lighter, panels
from nlq.plots._words import footer
from nlq.stats.printing import plural, rate
from nlq.stats.selection import GridPoint, Selection, load
from nlq.stats.source import Source
from nlq.stats.tuning import Bowl, Tuned, best_three, held, optimum, peak_rate

TITLE = "validation loss against the peak learning rate of each arm: its bowl, optimum, edge, and what diverged"

PANEL_INCHES = 2.5
POOR = 6.0
"""The axis reaches above the lowest loss by so many times the depth of the deepest bowl; poorer points lie above it."""
TOP_SHARE, TOP = 0.09, 0.965
"""Share of the panel, at the top, that is kept for what diverged or lies above the axis, and where its marks stand."""
DOTTED = (0, (1, 1.2))


class Tried(NamedTuple):
    """One learning rate of an arm: losses of the seeds that ended well and their mean, nats a token.

    The mean is +inf where a tuning seed diverged. `held`: the other settings are those of the arm's best point.
    """

    lr_max: float
    seeds: tuple[float, ...]
    mean: float
    held: bool


class Line(NamedTuple):
    """An arm: what it tried, by rate; where its best point lies; the parabola and the rates that it goes through."""

    arm: str
    label: str
    points: tuple[Tried, ...]
    best: Tried | None
    tuned: Tuned
    bowl: Bowl | None
    span: tuple[float, float] | None


class LrSensitivity(NamedTuple):
    """The figure's data; losses are those that choose points, on `split`."""

    baseline: str
    lines: tuple[Line, ...]
    split: str
    footer: str


def read(reader: Source, sweep: str | None = None) -> LrSensitivity:
    """Read each arm's learning rates. Raises NlqError when none has a result yet, or as `load` does."""
    selection = load(reader, sweep)
    lines = tuple(_line(selection, arm) for arm in selection.best)
    if not any(math.isfinite(tried.mean) or tried.seeds for line in lines for tried in line.points):
        raise NlqError(f'sweep "{selection.sweep.name}" has no learning rate with a result to draw yet', "nlq status")
    split = selection.at.select_split
    told = f"{footer(selection, False)}\nlosses that choose each arm's point: split {split}, tuning seeds"
    return LrSensitivity(selection.sweep.baseline, lines, split, told)


def draw(data: LrSensitivity, figure: Figure) -> None:
    """One panel over a logarithmic axis of learning rates; its top edge holds what diverged or lies above it."""
    (axes,) = panels(figure, 1)
    styles = arm_styles([line.arm for line in data.lines], data.baseline)
    rates = [tried.lr_max for line in data.lines for tried in line.points]
    first = [tried.lr_max for line in data.lines for tried in line.points if line.arm == data.baseline]
    low, high = _range(data.lines)
    above = _above(data.lines, high)
    axes.set_ylim(low, high + (high - low) * TOP_SHARE * bool(above or _lost(data.lines)))
    dress_log(axes, around(rates), [*first, *rates], rate)
    for index, line in enumerate(data.lines):
        _draw_line(axes, line, styles[line.arm])
        _draw_seeds(axes, line, styles[line.arm], _step(index, len(data.lines), 3.0, 16.0))
    _draw_top(axes, data.lines, styles, high)
    axes.set_xlabel("Peak learning rate, η_max", fontsize=8)
    axes.set_ylabel("Validation loss\n(nats a token)", fontsize=8)
    told = data.footer + (f"\n▲ {plural(above, 'point')} above the axis" if above else "")
    finish(figure, [axes], [PANEL_INCHES], _keys(data, styles), told)


def _line(selection: Selection, arm: str) -> Line:
    best = selection.best[arm]
    others = {id(point) for point in held(selection, best)}
    found = {id(p): _tried(selection, p, id(p) in others) for p in selection.points[arm]}
    points = sorted((tried for tried in found.values() if tried), key=lambda tried: tried.lr_max)
    place = optimum(selection, arm)
    along = [tried for tried in points if tried.held]
    three = best_three([tried.lr_max for tried in along], [tried.mean for tried in along]) if place.bowl else []
    span = (three[0][0], three[-1][0]) if three else None
    return Line(arm, best.label, tuple(points), found[id(best)], place.tuned, place.bowl, span)


def _tried(selection: Selection, point: GridPoint, is_held: bool) -> Tried | None:
    """None while the point has no result, or where its learning rate is not known."""
    lr_max, losses = peak_rate(point), selection.tuning_losses(point)
    if not losses or not lr_max or lr_max <= 0:
        return None
    seeds = tuple(loss for loss in losses.values() if math.isfinite(loss))
    return Tried(lr_max, seeds, sum(losses.values()) / len(losses), is_held)


def _range(lines: Iterable[Line]) -> tuple[float, float]:
    """All losses, unless poor rates would flatten the bowls."""
    known = [loss for line in lines for tried in line.points for loss in (*tried.seeds, tried.mean)]
    finite = [loss for loss in known if math.isfinite(loss)]
    bottoms = [line.best for line in lines if line.best and math.isfinite(line.best.mean)]
    near = [loss for line in lines for tried in _near(line) for loss in (*tried.seeds, tried.mean)]
    depth = max((loss for loss in near if math.isfinite(loss)), default=max(finite)) - min(finite)
    high = min(max(finite), min(finite) + POOR * depth) if bottoms and depth else max(finite)
    margin = 0.07 * (high - min(finite)) or 0.01 * abs(high)
    return min(finite) - margin, high + margin


def _near(line: Line) -> list[Tried]:
    """The best point and its neighbours."""
    along = [tried for tried in line.points if tried.held]
    rates = {lr for lr, _ in best_three([tried.lr_max for tried in along], [tried.mean for tried in along])}
    return [tried for tried in along if tried.lr_max in rates]


def _lost(lines: Iterable[Line]) -> list[tuple[str, Tried]]:
    return [(line.arm, tried) for line in lines for tried in line.points if not math.isfinite(tried.mean)]


def _above(lines: Iterable[Line], high: float) -> int:
    return sum(high < tried.mean < math.inf for line in lines for tried in line.points)


def _draw_line(axes: Axes, line: Line, style: ArmStyle) -> None:
    along = [tried for tried in line.points if tried.held]
    axes.plot(
        [tried.lr_max for tried in along],
        [tried.mean if math.isfinite(tried.mean) else math.nan for tried in along],
        color=style.colour, linewidth=1.1, marker=style.marker, markersize=3.6, markeredgewidth=0, zorder=3,
    )  # fmt: skip
    others = [tried for tried in line.points if not tried.held and math.isfinite(tried.mean)]
    axes.plot(
        [tried.lr_max for tried in others], [tried.mean for tried in others], linestyle="none",
        marker=style.marker, markersize=3.6, markerfacecolor="white", markeredgecolor=style.colour, markeredgewidth=0.8,
    )  # fmt: skip
    _draw_optimum(axes, line, style)


def _draw_seeds(axes: Axes, line: Line, style: ArmStyle, points_aside: float) -> None:
    """Small and pale, a little aside: all arms' seeds stand at the same rates."""
    seeds = [(tried.lr_max, loss) for tried in line.points if len(tried.seeds) > 1 for loss in tried.seeds]
    axes.plot(
        [lr for lr, _ in seeds], [loss for _, loss in seeds], linestyle="none", marker=style.marker, markersize=2.2,
        color=lighter(style.colour, 0.4), markeredgewidth=0, zorder=2.5,
        transform=aside(axes, axes.transData, points_aside),
    )  # fmt: skip


def _draw_optimum(axes: Axes, line: Line, style: ArmStyle) -> None:
    """The parabola with a bar at its lowest point, or a ring around a best point that is not inside its grid."""
    if line.bowl and line.span:
        x = np.geomspace(*line.span, 60)
        y = [line.bowl.at(float(lr)) for lr in x]
        axes.plot(x, y, color=lighter(style.colour, 0.3), linewidth=0.8, linestyle=DOTTED, zorder=2.8)
        axes.plot(
            line.bowl.lr_max, line.bowl.loss_nats, marker="|", color=style.colour, markersize=10, markeredgewidth=1.3
        )
    elif line.best and math.isfinite(line.best.mean) and line.tuned != Tuned.INTERIOR:
        axes.plot(
            line.best.lr_max, line.best.mean, marker="o", markersize=8.5, markerfacecolor="none",
            markeredgecolor=style.colour, markeredgewidth=0.9, zorder=4,
        )  # fmt: skip


def _draw_top(axes: Axes, lines: Iterable[Line], styles: dict[str, ArmStyle], high: float) -> None:
    """Marks along the top edge, side by side where several arms have one at the same rate."""
    marks: dict[float, list[tuple[str, str]]] = {}
    for line in lines:
        for tried in line.points:
            if tried.mean > high:
                marks.setdefault(tried.lr_max, []).append((line.arm, "x" if math.isinf(tried.mean) else "^"))
    for lr_max, several in marks.items():
        for index, (arm, marker) in enumerate(several):
            axes.plot(
                [lr_max], [TOP], marker=marker, color=styles[arm].colour, markersize=4.5, linestyle="none", zorder=5,
                markeredgewidth=1.2 if marker == "x" else 0, clip_on=False,
                transform=aside(axes, axes.get_xaxis_transform(), _step(index, len(several), 5.0, 30.0)),
            )  # fmt: skip


def _step(index: int, count: int, wide: float, most: float) -> float:
    """Points of type to move one of several marks aside: `wide` apart, closer where they would fill over `most`."""
    return min(wide, most / count) * (index - (count - 1) / 2)


def _keys(data: LrSensitivity, styles: dict[str, ArmStyle]) -> list[Key]:
    arms = Key([handle(styles[line.arm]) for line in data.lines], [_name(line) for line in data.lines])
    points = [tried for line in data.lines for tried in line.points]
    signs = [
        (any(len(tried.seeds) > 1 for tried in points), sign("o", 2.6), "one seed"),
        (any(line.bowl for line in data.lines), sign("|", 8, stroke=DOTTED), "parabola, vertex"),
        (any(line.tuned != Tuned.INTERIOR for line in data.lines), sign("o", 7, hollow=True), "not tuned"),
        (any(not tried.held for tried in points), sign("o", 3.6, hollow=True), "other settings differ from the best"),
        (bool(_lost(data.lines)), diverged_handle(), "a seed diverged"),
    ]
    return [arms, key_of(signs)]


def _name(line: Line) -> str:
    if line.best is None:
        return f"{line.label} (no result)"
    if not math.isfinite(line.best.mean):
        return f"{line.label} (diverged)"
    best = f"{line.label}: best {rate(line.best.lr_max)}"
    if line.tuned != Tuned.INTERIOR:
        return f"{best} ({'edge' if line.tuned == Tuned.EDGE else 'one rate'})"
    return f"{best}, vertex {_rounded(line.bowl.lr_max)}" if line.bowl else best


def _rounded(lr_max: float) -> str:
    return rate(float(f"{lr_max:.2e}"))
