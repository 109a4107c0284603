"""Figure 1 of the paper: each arm's loss over training, and its gain over the baseline, at the arm's best point."""

from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots._curves import Curve, gain, last_step, limits, relative, train, train_table, train_window, validation
from nlq.plots._layout import Key, finish
from nlq.plots._lines import diverged_handle, draw_curve, handle, say, zero_line
from nlq.plots._style import ArmStyle, arm_styles, panels, step_unit
from nlq.plots._words import footer, suffix
from nlq.stats.selection import GridPoint, Selection, load
from nlq.stats.source import Source

TITLE = "loss over training and gain over the baseline, each arm at its best point (Figure 1)"

PANEL_INCHES = (1.75, 1.55)
DASHED = (0, (3, 1.4))

EARLY = 0.2
"""Share of training, from the start, that does not set the range of the y axes: the loss falls too far there."""


class Line(NamedTuple):
    """One arm at its best point: validation loss (nats a token) and ΔLL over the baseline (percent)."""

    arm: str
    label: str
    loss: Curve
    gain: Curve


class TrainingDynamics(NamedTuple):
    """The figure's data. `train` is the best arm's training loss and gain, averaged over `window` steps."""

    baseline: str
    lines: tuple[Line, ...]
    train: Line | None
    window: int
    footer: str


def read(reader: Source, sweep: str | None = None) -> TrainingDynamics:
    """Read each arm's curves. Raises NlqError when no run of the sweep has an evaluation, or as `load` does."""
    selection = load(reader, sweep)
    lines = tuple(_line(selection, point) for point in selection.best.values())
    if not any(len(line.loss.steps) for line in lines):
        raise NlqError(f'sweep "{selection.sweep.name}" has no evaluation to draw yet', "nlq status")
    trained, window = _train(reader, selection)
    told = footer(selection, any(line.loss.seeds > 1 for line in lines))
    if trained:
        told += f"\ntraining loss: means over {window} steps" if window > 1 else "\ntraining loss: every step"
    return TrainingDynamics(selection.sweep.baseline, lines, trained, window, told)


def draw(data: TrainingDynamics, figure: Figure) -> None:
    """Two panels over one axis of steps, and one legend below them."""
    top, bottom = panels(figure, 2)
    curves = [line.loss for line in data.lines]
    end = last_step(curves)
    unit, label = step_unit(end)
    styles = arm_styles([line.arm for line in data.lines], data.baseline)
    _draw_losses(top, data, styles, unit, EARLY * end)
    _draw_gains(bottom, data, styles, unit, EARLY * end)
    bottom.set_xlabel(label, fontsize=8)
    bottom.set_xlim(0, 1.015 * end / unit or 1)
    steep = any(len(curve.steps) and curve.mean.max() > top.get_ylim()[1] for curve in curves)
    told = data.footer + ("\nupper panel: the steep start of training lies above the axis" if steep else "")
    finish(figure, [top, bottom], PANEL_INCHES, [_key(data, styles)], told)


def _line(selection: Selection, point: GridPoint) -> Line:
    label = f"{point.label}{suffix(selection, point)}"
    return Line(point.arm, label, validation(selection, point), gain(selection, point))


def _train(reader: Source, selection: Selection) -> tuple[Line | None, int]:
    """Training loss of the arm with the lowest validation loss (but the baseline), and the window of its means."""
    arm = _best_arm(selection)
    if arm is None:
        return None, 1
    point, reference = selection.best[arm], selection.reference
    runs = dict.fromkeys(t.member.run.run_id for p in (point, reference) for t in p.traces)
    steps = reader.steps(list(runs))
    if steps.empty:
        return None, 1
    window = train_window(steps)
    own, base = _tables(steps, point, reference, window)
    line = Line(arm, f"{point.label}, training", train(own), relative(base, own))
    return (line if len(line.loss.steps) else None), window


def _tables(
    steps: pd.DataFrame, point: GridPoint, reference: GridPoint, window: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    return train_table(steps, point, window), train_table(steps, reference, window)


def _best_arm(selection: Selection) -> str | None:
    means = {arm: selection.losses(point) for arm, point in selection.best.items()}
    known = {arm: sum(losses.values()) / len(losses) for arm, losses in means.items() if losses}
    others = {arm: mean for arm, mean in known.items() if arm != selection.sweep.baseline}
    return min(others or known, key=lambda arm: known[arm], default=None)


def _draw_losses(axes: Axes, data: TrainingDynamics, styles: dict[str, ArmStyle], unit: float, after: float) -> None:
    for line in data.lines:
        draw_curve(axes, line.loss, styles[line.arm], unit)
    shown = [line.loss for line in data.lines]
    if data.train:
        draw_curve(axes, data.train.loss, styles[data.train.arm], unit, DASHED, 0.25, band=False, marked=False)
        shown.append(data.train.loss)
    axes.set_ylabel("Validation loss\n(nats a token)", fontsize=8)
    span = limits(shown, after)
    if span:
        axes.set_ylim(*span)


def _draw_gains(axes: Axes, data: TrainingDynamics, styles: dict[str, ArmStyle], unit: float, after: float) -> None:
    zero_line(axes)
    others = [line for line in data.lines if line.arm != data.baseline]
    for line in others:
        draw_curve(axes, line.gain, styles[line.arm], unit)
    shown = [line.gain for line in others]
    if data.train and data.train.arm != data.baseline:
        draw_curve(axes, data.train.gain, styles[data.train.arm], unit, DASHED, 0.25, band=False, marked=False)
        shown.append(data.train.gain)
    axes.set_ylabel("Improvement over\nbaseline, ΔLL (%)", fontsize=8)
    span = limits(shown, after, (0.0,))
    if span:
        axes.set_ylim(*span)
    if not any(len(curve.steps) for curve in shown):
        say(axes, "nothing to compare with the baseline" if others else "the baseline is the only arm")


def _key(data: TrainingDynamics, styles: dict[str, ArmStyle]) -> Key:
    handles = [handle(styles[line.arm]) for line in data.lines]
    labels = [line.label for line in data.lines]
    if data.train:
        handles.append(handle(styles[data.train.arm], DASHED, 0.25, marked=False))
        labels.append(data.train.label)
    if any(line.loss.lost and len(line.loss.steps) for line in data.lines):
        handles.append(diverged_handle())
        labels.append("diverged")
    return Key(handles, labels)
