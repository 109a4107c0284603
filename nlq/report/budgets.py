"""How much each arm was tuned, and where its best point lies (METHOD 4.4)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.origin import origin, where
from nlq.stats.printing import DASH, loss, rate, settings
from nlq.stats.selection import Selection
from nlq.stats.tuning import Optimum, budget, expected_best, optimum, tuning_loss

TITLE = "Tuning budgets"

MOST_TRIED = 8
"""So many points of the tuning curve are printed."""


@dataclass(frozen=True)
class Row:
    """An arm: its budget, the chosen point, and `expected_best` in words; the parabola is None without neighbours."""

    arm: str
    label: str
    budget_points: int
    budget_seeds: int
    point: Mapping[str, Any]
    optimum: str
    optimum_lr_max: float | None
    curvature_nats: float | None
    lowest: str
    expected_best: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The rows in the order of the sweep."""

    sweep: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def of(selection: Selection) -> Table:
    """The budgets of a sweep that has been read."""
    rows = tuple(_row(selection, arm) for arm in selection.points)
    drawn = "best of k: expected loss of the best of k points drawn with replacement; +∞ where one diverged"
    return Table(selection.sweep.name, rows, (origin(selection), where(selection), drawn))


def sheet(table: Table) -> Sheet:
    """The budgets ready to be rendered."""
    return lay_out(f"{TITLE} ({table.sweep})", COLUMNS, table.rows, table.notes, asdict(table))


def lowest(found: Optimum) -> str:
    """Where the parabola through the best three learning rates is lowest, and how steep it is; a dash without one."""
    return f"{rate(found.bowl.lr_max)}, {found.bowl.curvature:.4f} nats per (ln η)²" if found.bowl else DASH


def expected(selection: Selection, arm: str) -> str:
    """The best of k points, by METHOD 4.4; a diverged one may always be the only one drawn: every value is infinite."""
    losses = [found for p in selection.points[arm] if (found := tuning_loss(selection, p)) is not None]
    if not losses:
        return DASH
    best = (expected_best(losses, k) for k in range(1, min(len(losses), MOST_TRIED) + 1))
    return ", ".join(f"{k}: {'+∞' if value == float('inf') else loss(value)}" for k, value in enumerate(best, 1))


def _row(selection: Selection, arm: str) -> Row:
    size, found, best = budget(selection.points[arm]), optimum(selection, arm), selection.best[arm]
    return Row(
        arm=arm,
        label=best.label,
        budget_points=size.points,
        budget_seeds=size.seeds,
        point=dict(best.settings),
        optimum=str(found.tuned),
        optimum_lr_max=found.bowl.lr_max if found.bowl else None,
        curvature_nats=found.bowl.curvature if found.bowl else None,
        lowest=lowest(found),
        expected_best=expected(selection, arm),
        run_ids=tuple(t.member.run.run_id for p in selection.points[arm] for t in p.traces),
    )


COLUMNS: tuple[Column[Row], ...] = (
    Column("Config", "Config", lambda row: Cell(row.label), numeric=False),
    Column("Budget", "Budget", lambda row: Cell(f"{row.budget_points} × {row.budget_seeds}")),
    Column("Best point", "Best point", lambda row: Cell(settings(row.point) or DASH), numeric=False),
    Column("Optimum", "Optimum", lambda row: Cell(row.optimum), numeric=False),
    Column("Parabola lowest at", "Parabola lowest at", lambda row: Cell(row.lowest), numeric=False),
    Column("Best of k", "Best of $k$", lambda row: Cell(row.expected_best), numeric=False),
)
