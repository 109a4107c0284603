"""Where panels, legends and footer stand: all measured, so that no legend ever covers data or leaves the page."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

from nlq.plots._style import FONT_POINTS, GREY, WIDTH_INCHES, printable, wrapped

EDGE, RIGHT, TOP, BOTTOM = 0.05, 0.14, 0.08, 0.06
FOOTER_LEFT, PANEL_GAP, AXIS_LABELS, LEGEND_GAP = 0.16, 0.12, 0.40, 0.04
"""Distances in inches."""

LABEL_CHARACTERS = 48


class Key(NamedTuple):
    """One legend: what is drawn, what it is called, and the legend's title."""

    handles: Sequence[Artist]
    labels: Sequence[str]
    title: str = ""


def key_of(entries: Iterable[tuple[bool, Artist, str]]) -> Key:
    """A legend of those entries that are wanted."""
    shown = [(artist, text) for is_wanted, artist, text in entries if is_wanted]
    return Key([artist for artist, _ in shown], [text for _, text in shown])


def finish(
    figure: Figure,
    axes: Sequence[Axes],
    heights: Sequence[float],
    keys: Sequence[Key],
    footer: str,
    gap: float = PANEL_GAP,
) -> None:
    """Size the figure for panels of these heights (inches, top first) with legends and footer below; place them all.

    `gap` is between panels and above the first, beyond the margin; titles of panels need a wider one.
    """
    figure.set_size_inches(WIDTH_INCHES, 4)
    legends = [_legend(figure, key) for key in keys if key.handles]
    note = _footer(figure, footer)
    below = [_height(figure, artist) + LEGEND_GAP for artist in [*legends, note]]
    top = TOP + gap - PANEL_GAP
    total = top + sum(heights) + gap * (len(heights) - 1) + AXIS_LABELS + sum(below) + BOTTOM
    figure.set_size_inches(WIDTH_INCHES, total)
    left = 0.6
    for _ in range(2):
        y = _place_axes(axes, heights, total, left, top, gap)
        left = _left_margin(figure, axes)
    for legend, height in zip(legends, below, strict=False):
        legend.set_bbox_to_anchor((0.5, y / total), transform=figure.transFigure)
        y -= height
    note.set_position((FOOTER_LEFT / WIDTH_INCHES, y / total))


def _left_margin(figure: Figure, axes: Sequence[Axes]) -> float:
    """Inches that tick labels and axis labels need left of the panels."""
    figure.align_ylabels(list(axes))
    boxes = [(panel.get_window_extent(_renderer(figure)), panel.get_tightbbox(_renderer(figure))) for panel in axes]
    return max(float(inner.x0 - outer.x0) / figure.dpi for inner, outer in boxes if outer is not None) + EDGE


def _place_axes(
    axes: Sequence[Axes], heights: Sequence[float], total: float, left: float, top: float, gap: float
) -> float:
    """Place panels from the top; returns the height (inches from the bottom) below the x axis and its label."""
    y = total - top
    for panel, height in zip(axes, heights, strict=True):
        y -= height
        panel.set_position(
            (left / WIDTH_INCHES, y / total, (WIDTH_INCHES - left - RIGHT) / WIDTH_INCHES, height / total)
        )
        y -= gap
    return y + gap - AXIS_LABELS


def _legend(figure: Figure, key: Key) -> Legend:
    """A legend with as many columns as fit."""
    labels = [wrapped(printable(label), LABEL_CHARACTERS) for label in key.labels]
    title = wrapped(printable(key.title), LABEL_CHARACTERS + 6)
    for columns in (4, 3, 2, 1):
        legend = figure.legend(
            list(key.handles),
            labels,
            title=title or None,
            loc="upper center",
            ncols=min(columns, len(labels)),
            fontsize=FONT_POINTS,
            title_fontsize=FONT_POINTS,
            frameon=False,
            borderaxespad=0,
            borderpad=0,
            handlelength=2.4,
            columnspacing=1.2,
            labelspacing=0.35,
        )
        if columns == 1 or legend.get_window_extent(_renderer(figure)).width / figure.dpi <= WIDTH_INCHES - 0.1:
            break
        legend.remove()
    return legend


def _footer(figure: Figure, footer: str) -> Text:
    """Small grey type; lines are broken by the measured width of the text."""
    note = figure.text(0, 0, "", fontsize=FONT_POINTS, color=GREY, va="top", linespacing=1.15)
    room = (WIDTH_INCHES - 2 * FOOTER_LEFT) * figure.dpi
    lines = []
    for line in footer.splitlines():
        note.set_text(printable(line))
        width = note.get_window_extent(_renderer(figure)).width
        lines.append(wrapped(printable(line), max(20, int(len(line) * room / max(width, 1) * 0.97))))
    note.set_text("\n".join(lines))
    return note


def _height(figure: Figure, artist: Artist) -> float:
    return float(artist.get_window_extent(_renderer(figure)).height) / figure.dpi


def _renderer(figure: Figure) -> RendererBase:
    return cast(RendererBase, cast(Any, figure.canvas).get_renderer())
