"""Drawing one curve: the line, its band over seeds, its markers, and the cross where a seed diverged."""

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation, Transform

from nlq.plots._curves import Curve
from nlq.plots._style import GREY, ArmStyle, Stroke, lighter

DOTS: Stroke = (0, (1, 1.5))
MARKS = 7
"""Markers on a line, at most."""


def draw_curve(
    axes: Axes,
    curve: Curve,
    style: ArmStyle,
    unit: float,
    stroke: Stroke = "solid",
    pale: float = 0.0,
    band: bool = True,
    marked: bool = True,
) -> None:
    """Draw a curve with steps divided by `unit`. `pale` mixes the colour with white (0 to 1)."""
    if not len(curve.steps):
        return
    x = curve.steps / unit
    colour = lighter(style.colour, pale)
    above = 3.0 - pale
    if band and curve.seeds > 1:
        axes.fill_between(x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0, zorder=above - 1)
    axes.plot(
        x,
        curve.mean,
        color=colour,
        linestyle=stroke,
        linewidth=1.3 - 0.5 * pale,
        marker=style.marker if marked else None,
        markersize=3.2,
        markevery=max(1, -(-len(x) // MARKS)),
        markeredgewidth=0,
        zorder=above,
    )
    if curve.lost:
        axes.plot(x[-1:], curve.mean[-1:], color=style.colour, marker="x", markersize=6, markeredgewidth=1.4, zorder=5)


def handle(style: ArmStyle, stroke: Stroke = "solid", pale: float = 0.0, marked: bool = True) -> Artist:
    """What a legend shows for a curve drawn with the same arguments."""
    return Line2D(
        [],
        [],
        color=lighter(style.colour, pale),
        linestyle=stroke,
        linewidth=1.3 - 0.5 * pale,
        marker=style.marker if marked else None,
        markersize=3.2,
        markeredgewidth=0,
    )


def diverged_handle() -> Artist:
    """What a legend shows for the cross of a diverged run."""
    return Line2D([], [], color=GREY, linestyle="none", marker="x", markersize=5, markeredgewidth=1.4)


def sign(
    marker: str, size: float = 4.0, *, hollow: bool = False, stroke: Stroke | None = None, colour: str = GREY
) -> Artist:
    """What a legend shows for a marker or line by itself; in grey where it means the same in every arm's colour."""
    return Line2D(
        [],
        [],
        color=colour,
        linestyle=stroke or "none",
        linewidth=0.9,
        marker=marker,
        markersize=size,
        markerfacecolor="white" if hollow else colour,
        markeredgewidth=1.2 if marker == "|" else 0.8 if hollow else 0,
    )


def aside(axes: Axes, transform: Transform, points: float) -> Transform:
    """The transform, moved to the right by so many points of type: several arms' marks at one x stand side by side."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return transform + ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)


def zero_line(axes: Axes) -> None:
    """The dotted line of the baseline against itself."""
    axes.axhline(0.0, color=GREY, linewidth=0.9, linestyle=DOTS, zorder=1.5)


def zero_handle() -> Artist:
    """What a legend shows for the zero line."""
    return Line2D([], [], color=GREY, linewidth=0.9, linestyle=DOTS)


def say(axes: Axes, text: str) -> None:
    """Say in an empty panel why it is empty."""
    axes.text(0.5, 0.7, text, transform=axes.transAxes, ha="center", va="center", fontsize=7, color=GREY)
