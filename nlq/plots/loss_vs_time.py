"""Validation loss against recorded seconds of training, each arm at its best point."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots import _against
from nlq.plots._against import Against, Axis
from nlq.plots._curves import Floats
from nlq.stats.cost import training_seconds
from nlq.stats.selection import GridPoint, load
from nlq.stats.source import Source

TITLE = "validation loss against recorded time of training, each arm at its best point"

UNITS = ((86_400.0, "days", 3.0), (3_600.0, "hours", 2.0), (60.0, "minutes", 5.0))
"""Seconds in a unit, its name, and from how many of it on the axis counts in it."""


def read(reader: Source, sweep: str | None = None) -> Against:
    """Read each arm's curve. Raises NlqError when none has evaluations and recorded times, or as `load` does."""
    selection = load(reader, sweep)
    updates = reader.steps([t.member.run.run_id for point in selection.best.values() for t in point.traces])
    empty = NlqError(
        f'sweep "{selection.sweep.name}": no arm has an evaluation and recorded times (imported runs have none)',
        "nlq status, or --sweep with one that was trained here",
    )

    def seconds(point: GridPoint, steps: Sequence[float]) -> Floats | None:
        return training_seconds(updates, point.traces, steps)

    data = _against.gather(selection, seconds, "no evaluation or no recorded time", empty)
    return data._replace(footer=f"{data.footer}\ntime of training steps, evaluations not counted: means over seeds")


def draw(data: Against, figure: Figure) -> None:
    """One panel."""
    _against.draw(data, figure, time_axis(_against.furthest(data)))


def time_axis(most_seconds: float) -> Axis:
    """Seconds, or the largest unit that the axis holds some of."""
    found = ((unit, name) for unit, name, least in UNITS if most_seconds >= least * unit)
    unit, name = next(found, (1.0, "seconds"))
    return Axis(unit, f"Training time ({name})")
