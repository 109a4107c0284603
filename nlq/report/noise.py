"""How much a run's loss varies over seeds: σ with its χ² interval (METHOD 4.1)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from nlq.core.errors import NlqError, nearest
from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.effects import Interval
from nlq.stats.origin import origin, where
from nlq.stats.power import FEWEST_FOR_NOISE, noise_interval
from nlq.stats.printing import loss
from nlq.stats.seeds import summarise
from nlq.stats.selection import Selection, load
from nlq.stats.source import Source

TITLE = "Noise of one run over seeds"


@dataclass(frozen=True)
class Row:
    """An arm at its best point: sd of the loss over `seeds`, nats a token, with its 95 % χ² interval."""

    arm: str
    label: str
    seeds: int
    mean_nats: float
    sigma_nats: float
    sigma_interval: Interval


@dataclass(frozen=True)
class Table:
    """σ of one arm, and where it was measured."""

    sweep: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read(reader: Source, sweep: str | None = None, arm: str | None = None) -> Table:
    """σ of an arm (the baseline when None) at its best point on the shown split.

    Raises NlqError with fewer than five seeds or a diverged one, for an unknown arm, or as `stats.selection.load` does.
    """
    selection = load(reader, sweep)
    arm = arm or selection.sweep.baseline
    if arm not in selection.best:
        raise NlqError(f'no arm "{arm}" in sweep {selection.sweep.name}', f"--arm: {nearest(arm, selection.best)}")
    return Table(selection.sweep.name, (_row(selection, arm),), tuple(_notes(selection)))


def sheet(table: Table) -> Sheet:
    """The table ready to be rendered."""
    return lay_out(f"{TITLE} ({table.sweep})", COLUMNS, table.rows, table.notes, asdict(table))


def _row(selection: Selection, arm: str) -> Row:
    point = selection.best[arm]
    found = summarise(selection.losses(point).values())
    if found is None or found.sd is None or found.n < FEWEST_FOR_NOISE:
        n = 0 if found is None or point.diverged else found.n
        raise NlqError(f"{point.label}: {n} seeds with a loss; σ needs {FEWEST_FOR_NOISE}", "nlq confirm --seeds 5")
    return Row(arm, point.label, found.n, found.mean, found.sd, noise_interval(found.sd, found.n - 1))


def _notes(selection: Selection) -> Iterator[str]:
    yield origin(selection)
    yield where(selection)
    yield "σ may differ by arm; give it to: nlq power --sigma, nlq report --evidence --sigma"


COLUMNS: tuple[Column[Row], ...] = (
    Column("Config", "Config", lambda row: Cell(row.label), numeric=False),
    Column("n", "n", lambda row: Cell(str(row.seeds))),
    Column("Val loss", "Val loss", lambda row: Cell(loss(row.mean_nats))),
    Column("σ, nats", r"$\sigma$, nats", lambda row: Cell(f"{row.sigma_nats:.5f}")),
    Column(
        "95 % interval",
        r"95 \% interval",
        lambda row: Cell(f"[{row.sigma_interval.low:.5f}, {row.sigma_interval.high:.5f}]"),
    ),
)
