"""What each arm's gain is worth in parameters of the baseline (METHOD 4.6)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.controls import Worth, controls, worths
from nlq.stats.effects import Interval
from nlq.stats.equivalents import FEWEST_SIZES
from nlq.stats.origin import origin, remarks, where
from nlq.stats.printing import DASH, count, loss
from nlq.stats.selection import Selection, load
from nlq.stats.source import Source

TITLE = "Equivalent parameters"


@dataclass(frozen=True)
class Row:
    """An arm; `equivalent` is in words, `ratio` and its 95 % interval times the baseline's non-embedding parameters.

    Outside the controls (`bracketed` false) the ratio is an extrapolation. None where it cannot be said, for `lack`.
    """

    arm: str
    label: str
    non_embedding_params: int | None
    total_params: int | None
    val_loss_nats: float | None
    equivalent: str | None
    ratio: float | None
    ratio_interval: Interval | None
    exponent: float | None
    sizes: int | None
    bracketed: bool | None
    lack: str | None


@dataclass(frozen=True)
class Table:
    """The rows in the order of the sweep, and the controls that they rest on."""

    sweep: str
    controls: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read(reader: Source, sweep: str | None = None, sigma_nats: float | None = None) -> Table:
    """Equivalents of a sweep (the latest when None). Raises NlqError as `stats.selection.load` does."""
    return of(reader, load(reader, sweep), sigma_nats)


def of(reader: Source, selection: Selection, sigma_nats: float | None = None) -> Table:
    """Equivalents of a sweep that has been read."""
    rows = tuple(_row(found) for found in worths(reader, selection, sigma_nats))
    labels = tuple(point.label for point in controls(selection))
    return Table(selection.sweep.name, labels, rows, tuple(_notes(selection, labels, rows)))


def sheet(table: Table) -> Sheet:
    """The table ready to be rendered."""
    return lay_out(f"{TITLE} ({table.sweep})", COLUMNS, table.rows, table.notes, asdict(table))


def _row(found: Worth) -> Row:
    run, worth = found.point.traces[0].member.run, found.equivalent
    return Row(
        arm=found.point.arm,
        label=found.point.label,
        non_embedding_params=run.non_embedding_params,
        total_params=run.total_params,
        val_loss_nats=found.loss_nats,
        equivalent=str(worth) if worth else None,
        ratio=worth.ratio if worth else None,
        ratio_interval=worth.interval if worth else None,
        exponent=worth.exponent if worth else None,
        sizes=worth.sizes if worth else None,
        bracketed=worth.bracketed if worth else None,
        lack=found.lack,
    )


def _notes(selection: Selection, labels: tuple[str, ...], rows: tuple[Row, ...]) -> Iterator[str]:
    yield origin(selection)
    yield where(selection)
    how = "local fit of ln L on ln N" if len(labels) >= FEWEST_SIZES else "two points: Fieller's interval"
    yield f"controls, of non-embedding parameters: {', '.join(labels)}; {how}; ≥ where they do not reach the loss"
    for row in rows:
        if row.lack:
            yield f"{row.label}: {row.lack}"
    yield from remarks(selection)


COLUMNS: tuple[Column[Row], ...] = (
    Column("Config", "Config", lambda row: Cell(row.label), numeric=False),
    Column("N.E. params", "N.E. params", lambda row: Cell(_count(row.non_embedding_params))),
    Column("All params", "All params", lambda row: Cell(_count(row.total_params))),
    Column("Val loss", "Val loss", lambda row: Cell(loss(row.val_loss_nats))),
    Column("Equivalent N.E. params", "Equivalent N.E. params", lambda row: Cell(row.equivalent or DASH)),
    Column("α", r"$\alpha$", lambda row: Cell(DASH if row.exponent is None else f"{row.exponent:.3f}")),
)


def _count(params: int | None) -> str:
    return DASH if params is None else count(params)
