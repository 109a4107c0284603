"""How much the final loss varies over seeds: a strip for each arm at its best point."""

import math
from typing import NamedTuple

from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots._layout import finish
from nlq.plots._strip import Row, cut, height, signs, strip
from nlq.plots._words import footer
from nlq.stats.compare import made_elsewhere
from nlq.stats.printing import loss
from nlq.stats.seeds import Mean, summarise
from nlq.stats.selection import GridPoint, Selection, load
from nlq.stats.source import Source

TITLE = "final validation losses of all seeds, each arm at its best point, means marked"


class Seeds(NamedTuple):
    """The figure's data: losses by seed, nats a token. `linked`: equal seeds read the same data, so they are joined."""

    baseline: str
    rows: tuple[Row, ...]
    linked: bool
    footer: str


def read(reader: Source, sweep: str | None = None) -> Seeds:
    """Read each arm's final losses. Raises NlqError when no arm has one, or as `load` does."""
    selection = load(reader, sweep)
    rows = tuple(_row(selection, point) for point in selection.best.values())
    if not any(row.values for row in rows):
        raise NlqError(f'sweep "{selection.sweep.name}" has no final loss to draw yet', "nlq status")
    linked = not any(made_elsewhere(selection, point) for point in selection.best.values())
    told = footer(selection, False) + ("\ngrey lines join equal seeds: the same order of the data" if linked else "")
    return Seeds(selection.sweep.baseline, rows, linked, told)


def draw(data: Seeds, figure: Figure) -> None:
    """One row an arm."""
    axes = strip(figure, data.rows, data.baseline, linked=data.linked)
    axes.set_xlabel("Validation loss (nats a token)", fontsize=8)
    key = signs(data.rows, "one seed", "a seed that chose the point")
    finish(figure, [axes], [height(data.rows)], [key], data.footer + cut(axes, data.rows))


def _row(selection: Selection, point: GridPoint) -> Row:
    """Seeds that chose the point flatter it, so they are hollow."""
    losses = selection.losses(point)
    finite = {seed: value for seed, value in sorted(losses.items()) if math.isfinite(value)}
    mean, fresh = summarise(losses.values()), set(selection.fresh_seeds(point))
    return Row(
        point.arm, point.label, finite, mean, len(losses) - len(finite), _note(point, mean),
        frozenset(finite) - fresh,
    )  # fmt: skip


def _note(point: GridPoint, mean: Mean | None) -> str:
    if mean is None:
        return f"{point.traces[0].member.run.state}"
    if not math.isfinite(mean.mean):
        return f"{len(point.diverged)} of {mean.n} diverged"
    return loss(mean.mean) + (f" ± {mean.sd:.4f}" if mean.sd is not None else "")
