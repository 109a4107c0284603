"""What each arm's loss is worth in parameters: the baseline at several sizes, the fit, and where the arms meet it."""

import math
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

from nlq.core.errors import NlqError
from nlq.plots._layout import Key, finish, key_of
from nlq.plots._lines import DOTS, sign
from nlq.plots._style import GREY, INK, ArmStyle, arm_styles, around, dress_log, panels
from nlq.plots._words import footer
from nlq.stats.controls import Worth, control_line, controls, params_of, worths
from nlq.stats.equivalents import FEWEST_SIZES, Equivalent, Line, Measured
from nlq.stats.printing import count
from nlq.stats.selection import Selection, load
from nlq.stats.source import Source

TITLE = "the baseline's loss by size, fit and band, and the parameters that each arm's loss is worth"

PANEL_INCHES = 2.4
DASHED = (0, (3, 1.6))
GRID = 81
"""Sizes at which the fit is drawn."""


class Control(NamedTuple):
    """The baseline at one size: non-embedding parameters, mean loss and its standard error, nats a token."""

    arm: str
    label: str
    params: int
    loss: Measured


class Read(NamedTuple):
    """An arm, its own non-embedding parameters and loss, and what it is worth; `lack` says why that is not known."""

    arm: str
    label: str
    params: int | None
    loss_nats: float | None
    worth: Equivalent | None
    lack: str | None


class ScalingFit(NamedTuple):
    """The figure's data; the fit reaches over the ends of the axis."""

    baseline: str
    controls: tuple[Control, ...]
    line: Line
    arms: tuple[Read, ...]
    footer: str


def read(reader: Source, sweep: str | None = None) -> ScalingFit:
    """Read controls, fit and arms. Raises NlqError with fewer than two usable controls, or as `load` does."""
    selection = load(reader, sweep)
    sizes = controls(selection)
    params = [params_of(point) or 0 for point in sizes]
    arms = tuple(_arm(found) for found in worths(reader, selection))
    try:
        measured, line = control_line(reader, selection, list(np.geomspace(*_ends(params, arms), GRID)))
    except NlqError as error:
        raise NlqError(
            f'sweep "{selection.sweep.name}": {error.message}',
            "add arms that are the baseline in another size: model.mlp.ratio, model.layers or model.width",
        ) from error
    known = tuple(Control(p.arm, p.label, n, m) for p, n, m in zip(sizes, params, measured, strict=True))
    return ScalingFit(selection.sweep.baseline, known, line, arms, _footer(selection, line, arms))


def draw(data: ScalingFit, figure: Figure) -> None:
    """One panel, both axes logarithmic; each arm's loss is carried over to the fit."""
    (axes,) = panels(figure, 1)
    arms = [one for one in data.arms if one.loss_nats is not None]
    styles = arm_styles([data.baseline, *(one.arm for one in data.arms)], data.baseline)
    ends = float(data.line.params[0]), float(data.line.params[-1])
    dress_log(axes, ends, [*(c.params for c in data.controls), *_equivalents(data)], lambda n: count(round(n)), 0.19)
    _draw_fit(axes, data)
    for one in arms:
        _draw_arm(axes, one, data.controls[0].params, styles[one.arm])
    _dress_losses(axes, data)
    axes.set_xlabel("Non-embedding parameters, N", fontsize=8)
    axes.set_ylabel("Validation loss, L\n(nats a token)", fontsize=8)
    finish(figure, [axes], [PANEL_INCHES], [_signs(data), _names(data, styles)], data.footer)


def _arm(found: Worth) -> Read:
    point = found.point
    return Read(point.arm, point.label, params_of(point), found.loss_nats, found.equivalent, found.lack)


def _ends(params: list[int], arms: tuple[Read, ...]) -> tuple[float, float]:
    """Sizes of all models and of what they are worth, where that is not further from the controls than these span."""
    span = max(max(params) / min(params), 1.5)
    worth = [params[0] * one.worth.ratio for one in arms if one.worth and math.isfinite(one.worth.ratio)]
    near = [n for n in [*worth, *(one.params or 0 for one in arms)] if min(params) / span <= n <= max(params) * span]
    return around([*params, *near], 0.12)


def _equivalents(data: ScalingFit) -> list[float]:
    base = data.controls[0].params
    return [base * one.worth.ratio for one in data.arms if one.worth and math.isfinite(one.worth.ratio)]


def _draw_fit(axes: Axes, data: ScalingFit) -> None:
    """Dashed beyond the controls, where it is an extrapolation."""
    line, sizes = data.line, [control.params for control in data.controls]
    axes.fill_between(line.params, line.low, line.high, color=GREY, alpha=0.15, linewidth=0, zorder=1)
    axes.plot(line.params, line.loss_nats, color=INK, linewidth=0.8, linestyle=DASHED, zorder=2)
    inside = (line.params >= min(sizes)) & (line.params <= max(sizes))
    axes.plot(line.params[inside], line.loss_nats[inside], color=INK, linewidth=1.1, zorder=2.1)
    for control in data.controls:
        se = control.loss.se_nats
        axes.errorbar(
            control.params, control.loss.loss_nats, yerr=se if math.isfinite(se) else None, color=INK,
            marker="o", markersize=4, elinewidth=0.8, capsize=1.8, capthick=0.8, linestyle="none", zorder=3,
        )  # fmt: skip


def _draw_arm(axes: Axes, one: Read, base: int, style: ArmStyle) -> None:
    """The arm at its own size, a dotted line at its loss to the equivalent on the fit, and the interval as a bar."""
    low, high = axes.get_xlim()
    loss = math.nan if one.loss_nats is None else one.loss_nats
    if one.params:
        axes.plot(one.params, loss, marker=style.marker, color=style.colour, markersize=4.5, markeredgewidth=0)
    if one.worth is None:
        return
    there = min(max(base * one.worth.ratio, low), high)
    ends = [min(max(base * end, low), high) for end in one.worth.interval]
    axes.plot([one.params or there, there], [loss, loss], color=style.colour, linewidth=0.8, linestyle=DOTS, zorder=2)
    if all(map(math.isfinite, one.worth.interval)):
        axes.plot(ends, [loss, loss], color=style.colour, linewidth=2.4, alpha=0.35, zorder=2.5, solid_capstyle="butt")
    beyond = not low <= base * one.worth.ratio <= high
    axes.plot(
        there, loss, marker=(">" if there == high else "<") if beyond else "o", markersize=5,
        markerfacecolor="white", markeredgecolor=style.colour, markeredgewidth=1.0, clip_on=False, zorder=4,
    )  # fmt: skip


def _dress_losses(axes: Axes, data: ScalingFit) -> None:
    """A logarithmic axis made for the points, in plain numbers; the band may leave it."""
    losses = [control.loss.loss_nats for control in data.controls]
    losses += [one.loss_nats for one in data.arms if one.loss_nats is not None]
    losses += [float(data.line.loss_nats.min()), float(data.line.loss_nats.max())]
    axes.set_yscale("log")
    axes.set_ylim(*around(losses, 0.1))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))


def _signs(data: ScalingFit) -> Key:
    how = "two-point line" if data.line.sizes < FEWEST_SIZES else f"fit of {data.line.sizes} sizes"
    return key_of([
        (True, sign("o", 4, colour=INK), f"controls: {', '.join(control.label for control in data.controls)}"),
        (True, sign("", stroke="solid", colour=INK), f"{how}, α = {data.line.exponent:.4f}".replace("-0", "−0")),
        (any(one.worth for one in data.arms), sign("o", 5, hollow=True), "worth in parameters of the baseline"),
    ])  # fmt: skip


def _names(data: ScalingFit, styles: dict[str, ArmStyle]) -> Key:
    artists = [sign(styles[one.arm].marker, 4.5, colour=styles[one.arm].colour) for one in data.arms]
    return Key(artists, [f"{one.label}: {one.worth or 'not known'}" for one in data.arms])


def _footer(selection: Selection, line: Line, arms: tuple[Read, ...]) -> str:
    told = [footer(selection, False)]
    told.append("ln L on ln N over the controls, dashed beyond them; ≥ where they do not reach an arm's loss")
    told.append("bars: one standard error of a control, 95 % interval of what an arm is worth")
    if np.isnan(line.low).all():
        told.append("one seed and no σ (nlq noise): neither band nor intervals")
    else:
        resampled = "seeds and documents resampled, without what moves all sizes alike"
        told.append(f"band: 95 %, {'delta method' if line.sizes < FEWEST_SIZES else resampled}")
    told += [f"{one.label}: {one.lack}" for one in arms if one.lack]
    return "\n".join(told)
