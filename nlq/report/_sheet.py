"""A table ready to be rendered: cells with their text, emphasis and footnote signs, and the record behind them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True)
class Cell:
    """What one cell shows; `mark` is a footnote sign that follows the text."""

    text: str
    bold: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its header (also as LaTeX), how a row becomes a cell, and whether it holds numbers (set right)."""

    header: str
    latex: str
    cell: Callable[[Row], Cell]
    numeric: bool = True


@dataclass(frozen=True)
class Sheet:
    """A table in no format yet. `record` is the whole table for JSON; its "rows" are the lines of the CSV."""

    title: str
    columns: Sequence[Column[Any]]
    cells: Sequence[Sequence[Cell]]
    notes: Sequence[str]
    record: Mapping[str, Any]


def sheet(
    title: str, columns: Sequence[Column[Row]], rows: Iterable[Row], notes: Sequence[str], record: Mapping[str, Any]
) -> Sheet:
    """Lay rows out under columns."""
    return Sheet(title, columns, [[column.cell(row) for column in columns] for row in rows], notes, record)
