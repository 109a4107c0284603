"""How fast each arm trains on this machine, beside the baseline."""

from typing import NamedTuple

from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots._layout import finish
from nlq.plots._strip import Row, cut, height, signs, strip
from nlq.plots._words import footer
from nlq.stats.cost import relative_speed, speed, speeds
from nlq.stats.printing import DASH, plural
from nlq.stats.selection import Selection, load
from nlq.stats.source import Source

TITLE = "training speed of each arm's runs in tokens a second, beside the baseline"

THOUSANDS_FROM = 10_000


class Throughput(NamedTuple):
    """The figure's data: tokens a second of every run that recorded them, by its place in the arm."""

    baseline: str
    rows: tuple[Row, ...]
    footer: str


def read(reader: Source, sweep: str | None = None) -> Throughput:
    """Read each arm's speeds. Raises NlqError when no run has one, or as `load` does."""
    selection = load(reader, sweep)
    rows = tuple(_row(selection, arm) for arm in selection.best)
    if not any(row.values for row in rows):
        raise NlqError(
            f'sweep "{selection.sweep.name}": no run has recorded its speed (imported ones have none)',
            "nlq status, or --sweep with one that was trained here",
        )
    told = f"{footer(selection, False)}\nspeed of all training steps of a run, evaluations not counted"
    return Throughput(selection.sweep.baseline, rows, told)


def draw(data: Throughput, figure: Figure) -> None:
    """One row an arm."""
    fastest = max(value for row in data.rows for value in row.values.values())
    unit, name = (1000.0, "thousand tokens") if fastest >= THOUSANDS_FROM else (1.0, "tokens")
    axes = strip(figure, data.rows, data.baseline, unit)
    axes.set_xlabel(f"Training speed ({name} a second)", fontsize=8)
    told = data.footer + cut(axes, data.rows, unit)
    finish(figure, [axes], [height(data.rows)], [signs(data.rows, "one run")], told)


def _row(selection: Selection, arm: str) -> Row:
    found, ratio = speeds(selection, arm), relative_speed(selection, arm)
    beside = "baseline" if arm == selection.sweep.baseline else f"× {ratio:.3f}" if ratio else DASH
    note = f"{beside}, {plural(len(found), 'run')}" if found else "no speed recorded"
    return Row(arm, selection.best[arm].label, dict(enumerate(found)), speed(selection, arm), 0, note)
