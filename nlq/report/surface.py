"""The full scaling surface L = E + A/N^α + B/D^β, from a sweep or from points of a file (METHOD 4.6)."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.origin import origin
from nlq.stats.scaled import Scaled, scaled
from nlq.stats.selection import load
from nlq.stats.source import Source
from nlq.stats.surface import DRAWS, SCANT_POINTS, Spread, Surface, fit_surface, spread

TITLE = "Scaling surface L = E + A/N^α + B/D^β"


@dataclass(frozen=True)
class Row:
    """One of the surface's numbers with its bootstrap standard error."""

    name: str
    value: float
    se: float


@dataclass(frozen=True)
class Table:
    """The five numbers, the points that they were fitted to, and the sum of Huber losses at the fit."""

    origin: str
    points: int
    objective: float
    draws: int
    scant: bool
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read(reader: Source, sweep: str | None = None) -> Table:
    """The surface of a sweep (the latest when None): its baseline in every size and length.

    Raises NlqError as `stats.surface.fit_surface` and `stats.selection.load` do.
    """
    selection = load(reader, sweep)
    whose = f"{origin(selection)}; the baseline in other sizes and lengths, N without embeddings"
    return of(scaled(selection), whose)


def of(points: Sequence[Scaled], whose: str, draws: int = DRAWS) -> Table:
    """The surface of these points. Raises NlqError as `stats.surface.fit_surface` does."""
    params, tokens, losses = ([point[axis] for point in points] for axis in range(3))
    fit = fit_surface(params, tokens, losses)
    found = spread(fit, params, tokens, losses, draws)
    rows = tuple(Row(name, getattr(fit, key), getattr(found, key)) for name, key in _NAMES.items())
    notes = tuple(_notes(fit, found, whose))
    return Table(whose, fit.points, fit.objective, found.draws, fit.scant, rows, notes)


def sheet(table: Table) -> Sheet:
    """The surface ready to be rendered."""
    return lay_out(TITLE, COLUMNS, table.rows, table.notes, asdict(table))


def _notes(fit: Surface, found: Spread, whose: str) -> Iterator[str]:
    yield whose
    yield (
        f"{fit.points} points; sum of Huber(1e-3) losses of ln L: {fit.objective:.10f}; "
        f"standard errors by {found.draws:,} resamples of the points"
    )
    if fit.scant:
        yield f"fewer than {SCANT_POINTS} points: not to be trusted; even 240 leave A ± 125 and B ± 1,293"


_NAMES = {"A": "A", "B": "B", "E": "E", "α": "alpha", "β": "beta"}

COLUMNS: tuple[Column[Row], ...] = (
    Column("", "", lambda row: Cell(row.name), numeric=False),
    Column("Value", "Value", lambda row: Cell(f"{row.value:.5g}")),
    Column("SE", "SE", lambda row: Cell(f"{row.se:.2g}" if row.se < 100 else f"{row.se:.0f}")),
)
