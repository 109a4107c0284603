"""What tuning buys each arm: the best loss to expect of k trials (Dodge et al. 2019)."""

import math
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nlq.core.errors import NlqError
from nlq.plots._layout import Key, finish
from nlq.plots._lines import handle
from nlq.plots._style import arm_styles, panels
from nlq.plots._words import footer
from nlq.stats.selection import Selection, load
from nlq.stats.source import Source
from nlq.stats.tuning import Budget, budget, tuning_curves

TITLE = "the best validation loss to expect of k trials of tuning, each arm (Dodge et al. 2019)"

PANEL_INCHES = 2.2


class Line(NamedTuple):
    """An arm: its budget, and the best of k = 1, 2, … trials, nats a token; +inf where that is not finite."""

    arm: str
    label: str
    budget: Budget
    best: tuple[float, ...]


class TuningCurve(NamedTuple):
    """The figure's data; `by_rank`: medians, because a trial diverged and every expectation would be infinite."""

    baseline: str
    lines: tuple[Line, ...]
    by_rank: bool
    footer: str


def read(reader: Source, sweep: str | None = None) -> TuningCurve:
    """Read each arm's trials. Raises NlqError when no arm has two with a result, or as `load` does."""
    selection = load(reader, sweep)
    curves = tuning_curves(selection)
    lines = tuple(
        Line(arm, point.label, budget(selection.points[arm]), tuple(curves.best[arm]))
        for arm, point in selection.best.items()
    )
    if not any(sum(map(math.isfinite, line.best)) > 1 for line in lines):
        raise NlqError(
            f'sweep "{selection.sweep.name}": no arm has two points of its grid with a result, so nothing was tuned',
            "give the spec a grid or points, or nlq status",
        )
    return TuningCurve(selection.sweep.baseline, lines, curves.by_rank, _footer(selection, curves.by_rank))


def draw(data: TuningCurve, figure: Figure) -> None:
    """One panel; a curve ends at the number of trials that its arm had."""
    (axes,) = panels(figure, 1)
    styles = arm_styles([line.arm for line in data.lines], data.baseline)
    for line in data.lines:
        style = styles[line.arm]
        axes.plot(
            range(1, len(line.best) + 1), [best if math.isfinite(best) else math.nan for best in line.best],
            color=style.colour, marker=style.marker, linewidth=1.1, markersize=3.4, markeredgewidth=0,
        )  # fmt: skip
    most = max(len(line.best) for line in data.lines)
    axes.set_xlim(1 - 0.04 * most, most * 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("Trials, k", fontsize=8)
    axes.set_ylabel(
        f"{'Median' if data.by_rank else 'Expected'} best of k,\nvalidation loss (nats a token)", fontsize=8
    )
    labels = [f"{line.label}, {line.budget}" for line in data.lines]
    finish(figure, [axes], [PANEL_INCHES], [Key([handle(styles[x.arm]) for x in data.lines], labels)], data.footer)


def _footer(selection: Selection, by_rank: bool) -> str:
    lines = [f"{footer(selection, False)}\na trial: a point with its seeds, on split {selection.at.select_split}"]
    if by_rank:
        lines.append("medians, not means: a trial that diverged makes every expectation infinite")
    return "\n".join(lines)
