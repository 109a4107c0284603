"""How much a run's loss varies over seeds: σ with its χ² interval (METHOD 4.1)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from nlq.core.noise import Noise
from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.calibrated import measure
from nlq.stats.effects import Interval
from nlq.stats.origin import origin, where
from nlq.stats.printing import loss
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
    """σ of one arm, where it was measured, and the record of it that can be kept."""

    sweep: str
    rows: tuple[Row, ...]
    measured: Noise
    notes: tuple[str, ...]


def read(reader: Source, sweep: str | None = None, arm: str | None = None, at_utc: str = "") -> Table:
    """σ of an arm (the baseline when None), measured at a time in UTC.

    Raises NlqError as `stats.calibrated.measure` and `stats.selection.load` do.
    """
    selection = load(reader, sweep)
    found = measure(selection, arm, at_utc)
    row = Row(
        found.arm,
        found.label,
        found.seeds,
        found.mean_nats,
        found.sigma_nats,
        Interval(found.low_nats, found.high_nats),
    )
    return Table(selection.sweep.name, (row,), found, tuple(_notes(selection)))


def sheet(table: Table) -> Sheet:
    """The table ready to be rendered."""
    return lay_out(f"{TITLE} ({table.sweep})", COLUMNS, table.rows, table.notes, asdict(table))


def _notes(selection: Selection) -> Iterator[str]:
    yield origin(selection)
    yield where(selection)
    yield "kept in the database, for comparisons without seeds of their own at this size, text and length"
    yield "σ may differ by arm: nlq noise --arm; another value: nlq power --sigma, nlq report --evidence --sigma"


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
