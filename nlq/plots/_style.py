"""The look of all figures: colours that the colour-blind can tell apart, type that stays readable in one column."""

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

WIDTH_INCHES = 3.5
"""One column of a two-column paper."""

FONT_POINTS = 7.0
GREY = "#666666"

INK = "#000000"
"""The baseline's colour."""

PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C00")
"""Okabe and Ito's colours, without the yellow, which white paper swallows."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
Stroke = Literal["solid"] | tuple[float, Sequence[float]]

STROKES: tuple[Stroke, ...] = (
    "solid",
    (0, (4, 1.5)),
    (0, (1, 1.2)),
    (0, (5, 1.2, 1, 1.2)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
"""Line styles of the points of a grid."""

LIKENESSES = str.maketrans({"⭐": "★", "🌟": "★", "✅": "✓", "❌": "✗"})
"""Emoji that the font lacks, by the sign that it has."""

TICK_ROOM = 0.13
"""Share of an axis that the label of a tick needs, "4.8e-3"."""

THOUSANDS_FROM = 5_000
"""Axes that reach this step count in thousands."""


class ArmStyle(NamedTuple):
    """How an arm is drawn in every figure of a sweep."""

    colour: str
    marker: str


def arm_styles(arms: Sequence[str], baseline: str) -> dict[str, ArmStyle]:
    """Black for the baseline; the others by their order in the sweep, with a new marker when colours recur."""
    others = [arm for arm in arms if arm != baseline]
    styles = {arm: ArmStyle(PALETTE[i % len(PALETTE)], MARKERS[1 + i % 7]) for i, arm in enumerate(others)}
    for i, arm in enumerate(others[len(PALETTE) :]):
        styles[arm] = ArmStyle(PALETTE[i % len(PALETTE)], MARKERS[1 + (i + 3) % 7])
    return {baseline: ArmStyle(INK, MARKERS[0]), **styles}


def lighter(colour: str, share: float) -> tuple[float, float, float]:
    """The colour mixed with white: 0 leaves it, 1 is white."""
    red, green, blue = (channel + (1 - channel) * share for channel in to_rgb(colour))
    return red, green, blue


def panels(figure: Figure, count: int) -> list[Axes]:
    """`count` stacked axes with one x axis, in an emptied figure; `_layout.finish` puts them in their place."""
    figure.clear()
    FigureCanvasAgg(figure)
    axes: list[Axes] = []
    for index in range(count):
        axes.append(figure.add_subplot(count, 1, index + 1, sharex=axes[0] if axes else None))
        _dress(axes[-1], last=index == count - 1)
    return axes


def _dress(axes: Axes, last: bool) -> None:
    axes.tick_params(labelsize=FONT_POINTS, length=2.5, width=0.6, labelbottom=last)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def dress_log(
    axes: Axes,
    ends: tuple[float, float],
    at: Sequence[float],
    form: Callable[[float], str],
    tick_room: float = TICK_ROOM,
) -> None:
    """A logarithmic x axis between two ends; ticks, written by `form`, at those of `at` that have room, first come."""
    axes.set_xscale("log")
    axes.set_xlim(*ends)
    room = tick_room * math.log(ends[1] / ends[0])
    shown: list[float] = []
    for value in dict.fromkeys(at):
        if ends[0] <= value <= ends[1] and all(abs(math.log(value / other)) >= room for other in shown):
            shown.append(value)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))


def around(values: Iterable[float], share: float = 0.06) -> tuple[float, float]:
    """Ends of a logarithmic axis that leave a margin (a share of its length) around these values, all above 0."""
    low, high = min(known := list(values)), max(known)
    margin = (high / low) ** share if high > low else 1.5
    return low / margin, high * margin


def printable(text: str) -> str:
    """Text that matplotlib draws as it is: no mathematics from "$", no glyph that the font lacks, no control marks.

    A leading underscore would hide a legend entry, so a space is put before it.
    """
    known = _glyphs()
    plain = re.sub(r"[\t\n\v\f\r ]+", " ", text).translate(LIKENESSES)
    drawn = "".join(char if ord(char) in known else "\N{REPLACEMENT CHARACTER}" for char in plain)
    return (" " if drawn.startswith("_") else "") + drawn.replace("$", r"\$")


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def wrapped(text: str, characters: int) -> str:
    """The text in lines of at most so many characters."""
    return "\n".join(textwrap.wrap(text, characters)) or text


def shortened(text: str, characters: int) -> str:
    """The text, cut to so many characters with "…" where it is longer."""
    return text if len(text) <= characters else text[: characters - 1].rstrip() + "…"


def step_unit(last_step: float) -> tuple[float, str]:
    """What an x axis divides steps by, and its label."""
    return (1000.0, "Training step (thousands)") if last_step >= THOUSANDS_FROM else (1.0, "Training step")
