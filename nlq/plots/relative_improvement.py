"""Figure 2 of the paper: every arm at every point, relative to the baseline's best point."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots._curves import Curve, gain, last_step, limits
from nlq.plots._layout import Key, finish
from nlq.plots._lines import diverged_handle, draw_curve, handle, say, zero_handle, zero_line
from nlq.plots._style import GREY, STROKES, ArmStyle, Stroke, arm_styles, panels, step_unit
from nlq.plots._words import footer, params, suffix
from nlq.stats.printing import plural, settings
from nlq.stats.selection import Selection, load
from nlq.stats.source import Source

TITLE = "gain over the baseline's best point, every arm at every point (Figure 2)"

PANEL_INCHES = 2.5
EARLY = 0.25
"""Share of training, from the start, that does not set the range of the y axis."""

ENTRIES = 9
"""Up to so many curves have a legend entry each; more are told by arm (colour) and by point (line style)."""


UNBROKEN = "\N{NO-BREAK SPACE}"


class Line(NamedTuple):
    """One arm at one point: ΔLL in percent. `point` is what the legend calls it; `best` marks the arm's best."""

    arm: str
    label: str
    point: str
    remark: str
    gain: Curve
    best: bool
    reference: bool


class RelativeImprovement(NamedTuple):
    """The figure's data; `params` is the legend's title, with the parameters of every arm."""

    baseline: str
    lines: tuple[Line, ...]
    params: str
    footer: str


def read(reader: Source, sweep: str | None = None) -> RelativeImprovement:
    """Read every point's curve. Raises NlqError when no run of the baseline has an evaluation, or as `load` does."""
    selection = load(reader, sweep)
    lines = tuple(_lines(selection))
    if not any(len(line.gain.steps) for line in lines if line.reference):
        raise NlqError(
            f'the baseline of sweep "{selection.sweep.name}" has no evaluation to compare with', "nlq status"
        )
    arms = ", ".join(f"{p.label} {params(p)}".replace(" ", UNBROKEN) for p in selection.best.values())
    told = footer(selection, any(line.gain.seeds > 1 for line in lines))
    return RelativeImprovement(selection.sweep.baseline, lines, f"N.E. params: {arms}", told)


def draw(data: RelativeImprovement, figure: Figure) -> None:
    """One panel; the dotted line is the baseline's best point."""
    (axes,) = panels(figure, 1)
    end = last_step(line.gain for line in data.lines)
    unit, label = step_unit(end)
    styles = arm_styles(list(dict.fromkeys(line.arm for line in data.lines)), data.baseline)
    drawn = [line for line in data.lines if not line.reference]
    zero_line(axes)
    for line in sorted(drawn, key=lambda line: line.best):
        look = _look(data, line)
        draw_curve(axes, line.gain, styles[line.arm], unit, look.stroke, look.pale, look.band, line.best)
    if not any(len(line.gain.steps) for line in drawn):
        say(axes, "nothing to compare with the baseline")
    axes.set_xlabel(label, fontsize=8)
    axes.set_ylabel("Improvement over baseline, ΔLL (%)", fontsize=8)
    axes.set_xlim(0, 1.015 * end / unit or 1)
    axes.set_ylim(*_range(drawn, EARLY * end))
    finish(figure, [axes], [PANEL_INCHES], _keys(data, styles), data.footer + _cut(drawn, axes.get_ylim()[0]))


class Look(NamedTuple):
    """How a point's curve differs from the others of its arm."""

    stroke: Stroke
    pale: float
    band: bool


def _range(drawn: list[Line], after: float) -> tuple[float, float]:
    """All curves, unless poor points would flatten the best ones: they may take two thirds of the panel at most."""
    wide = limits([line.gain for line in drawn], after, (0.0,)) or (-1.0, 1.0)
    best = limits([line.gain for line in drawn if line.best], after, (0.0,)) or wide
    return max(wide[0], best[0] - 2 * (best[1] - best[0])), wide[1]


def _cut(drawn: list[Line], floor: float) -> str:
    """A line for the footer that counts the curves which end below the axis."""
    below = sum(bool(len(line.gain.steps)) and line.gain.mean[-1] < floor for line in drawn)
    return f"\n{plural(below, 'curve')} below the axis" if below else ""


def _lines(selection: Selection) -> list[Line]:
    vary = _varying([p.settings for ps in selection.points.values() for p in ps])
    return [
        Line(
            point.arm,
            point.label,
            settings({name: value for name, value in point.settings.items() if name in vary}),
            suffix(selection, point),
            gain(selection, point),
            point is selection.best[point.arm],
            point is selection.reference,
        )
        for points in selection.points.values()
        for point in points
    ]


def _varying(points: list[Mapping[str, Any]]) -> set[str]:
    """Settings whose value is not the same at every point."""
    names = {name for point in points for name in point}
    return {name for name in names if len({repr(point.get(name)) for point in points}) > 1}


def _points(data: RelativeImprovement) -> list[str]:
    return list(dict.fromkeys(line.point for line in data.lines))


def _look(data: RelativeImprovement, line: Line) -> Look:
    """A point has one line style in all arms; an arm's best point is darkest, and has a band where there are many."""
    index = _points(data).index(line.point)
    crowded = len(data.lines) > ENTRIES
    pale = 0.0 if line.best else min(0.65, 0.45 + 0.2 * (index // len(STROKES)))
    return Look(STROKES[index % len(STROKES)], pale, line.best or not crowded)


def _keys(data: RelativeImprovement, styles: dict[str, ArmStyle]) -> list[Key]:
    drawn = [line for line in data.lines if not line.reference]
    crowded = len(data.lines) > ENTRIES
    zero = next(line for line in data.lines if line.reference)
    signs: list[tuple[Artist, str]] = [(zero_handle(), "baseline's best" if crowded else f"{_name(zero)} = 0")]
    if any(line.gain.lost and len(line.gain.steps) for line in drawn):
        signs.append((diverged_handle(), "diverged"))
    if not crowded:
        return [_key([(_handle(data, line, styles), _name(line)) for line in drawn] + signs, data.params)]
    bests = [line for line in data.lines if line.best]
    arms = [(handle(styles[line.arm]), f"{line.label}{line.remark}") for line in bests]
    return [_key(arms, data.params), _key(_strokes(data) + signs, "markers: each arm's best point")]


def _key(entries: list[tuple[Artist, str]], title: str) -> Key:
    return Key([artist for artist, _ in entries], [label for _, label in entries], title)


def _strokes(data: RelativeImprovement) -> list[tuple[Artist, str]]:
    """The line styles of the points, in grey; none when there is one point only."""
    points = _points(data)
    grey = ArmStyle(GREY, "")
    looks = [(STROKES[i % len(STROKES)], 0.2 * (i // len(STROKES))) for i in range(len(points))]
    styles = [handle(grey, stroke, min(pale, 0.6), marked=False) for stroke, pale in looks]
    return list(zip(styles, points, strict=True)) if len(points) > 1 else []


def _handle(data: RelativeImprovement, line: Line, styles: dict[str, ArmStyle]) -> Artist:
    look = _look(data, line)
    return handle(styles[line.arm], look.stroke, look.pale, line.best)


def _name(line: Line) -> str:
    return f"{line.label}{', ' if line.point else ''}{line.point}{line.remark}"
