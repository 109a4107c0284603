"""Table 1 with what each difference rests on: one row an arm, the verdict first."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from nlq.report import evidence, table1
from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.evidence import Evidence
from nlq.stats.printing import DASH

TITLE = "Table 1 with evidence: each arm against the baseline"

LOSSES = "± is the sd over the seeds of the loss; δ, ΔLL, ΔPPX and p rest on the n seeds of the evidence"


@dataclass(frozen=True)
class Row:
    """An arm in Table 1 and in the evidence (None of the baseline); `budget` and `optimum` are in words."""

    shown: table1.Row
    found: evidence.Row | None
    budget: str
    optimum: str
    lowest: bool


@dataclass(frozen=True)
class Table:
    """The rows in the order of the sweep, and what a reader must know."""

    sweep: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def of(found: Evidence) -> Table:
    """Both tables side by side."""
    first, second = table1.of(found.selection), evidence.of(found)
    by_arm = {row.arm: row for row in second.rows}
    least = min((r.val_loss_nats for r in first.rows if r.val_loss_nats is not None), default=None)
    base = f"{found.base_budget.points} × {found.base_budget.seeds}", str(found.base_optimum.tuned)
    rows = tuple(
        Row(row, by_arm.get(row.arm), *base, least is not None and row.val_loss_nats == least) for row in first.rows
    )
    return Table(first.sweep, rows, (*second.notes[:2], LOSSES, *second.notes[2:]))


def sheet(table: Table) -> Sheet:
    """The table ready to be rendered."""
    record = {"sweep": table.sweep, "rows": [_record(row) for row in table.rows], "notes": table.notes}
    return lay_out(f"{TITLE} ({table.sweep})", COLUMNS, table.rows, table.notes, record)


def _record(row: Row) -> Mapping[str, Any]:
    """Differences are the evidence's; the seeds behind the loss have a name of their own."""
    shown = {k: v for k, v in asdict(row.shown).items() if not k.startswith("delta_") or "embedding" in k}
    found = asdict(row.found) if row.found else dict.fromkeys(f.name for f in fields(evidence.Row))
    return {**found, **shown, "n_seeds": found["n_seeds"], "val_loss_seeds": row.shown.n_seeds}


def _first(header: str) -> Column[Row]:
    column = next(c for c in table1.COLUMNS if c.header == header)
    return Column(header, column.latex, lambda row: column.cell((row.shown, row.lowest)), column.numeric)


def _second(header: str, of_baseline: Callable[[Row], str]) -> Column[Row]:
    column = next(c for c in evidence.COLUMNS if c.header == header)
    return Column(
        header,
        column.latex,
        lambda row: column.cell(row.found) if row.found else Cell(of_baseline(row)),
        column.numeric,
    )


COLUMNS: tuple[Column[Row], ...] = (
    _first("Config"),
    _second("Verdict", lambda _: "ref."),
    _first("Val loss"),
    _second("δ, nats", lambda _: "ref."),
    _second("ΔLL", lambda _: "ref."),
    _second("ΔPPX", lambda _: "ref."),
    _second("p", lambda _: DASH),
    _second("n", lambda row: str(row.shown.n_seeds)),
    _second("Budget", lambda row: row.budget),
    _second("Optimum", lambda row: row.optimum),
    *map(_first, ("Δ N.E. params", "λ", "η_max", "η_min")),
)
