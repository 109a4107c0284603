"""A table ready to be rendered: cells with their text, emphasis and footnote signs, and the record behind them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")

DASH = "–"
"""Stands where a number is missing."""


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


def loss(nats: float | None) -> str:
    """A loss with four decimals."""
    return DASH if nats is None or not math.isfinite(nats) else f"{nats:.4f}"


def percent(fraction: float | None, sign: bool = False) -> str:
    """A fraction in percent with two decimals: 0.024 as "2.40 %"."""
    if fraction is None or not math.isfinite(fraction):
        return DASH
    text = f"{100 * fraction:+.2f}" if sign else f"{100 * fraction:.2f}"
    return f"{text.replace('-', '−')} %"


def rate(value: float | None) -> str:
    """A learning rate as people write it: 0.0036 as "3.6e-3"."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def plain(value: float | None) -> str:
    """A number with as many digits as it needs, up to six."""
    return DASH if value is None or not math.isfinite(value) else f"{value:g}"


def count(value: int) -> str:
    """A parameter count: 84953856 as "84.95M"."""
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if value >= unit:
            return f"{value / unit:.2f}{name}"
    return str(value)
