"""Table 1 of the paper for a sweep: each arm at its best point, or every point, against the baseline's best."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.compare import Comparison, compare
from nlq.stats.effects import Interval
from nlq.stats.origin import origin, remarks, where
from nlq.stats.printing import loss, percent, plain, plural, rate, setting
from nlq.stats.seeds import Mean, summarise
from nlq.stats.selection import GridPoint, Selection, load
from nlq.stats.source import Source

FRESH_ALONE = "best points are shown on fresh seeds alone, which did not choose them"
TITLE = "Table 1: each arm against the baseline"

COLUMN_SETTINGS = ("optim.lr_max", "optim.lr_min", "optim.lr_min_ratio", "optim.weight_decay")
"""Settings of a point that stand in columns of their own; others are added to the arm's label."""


@dataclass(frozen=True)
class Row:
    """An arm at one point. Losses in nats a token, Δ as fractions, None where a number is missing.

    `seeds` are the ones behind `val_loss_nats`, `paired_seeds` those behind the Δ columns. `matched` says whether
    these read the baseline's batches. `status` is "completed", or says in words what is wrong.
    """

    arm: str
    label: str
    non_embedding_params: int | None
    delta_non_embedding_params: int | None
    delta_non_embedding_fraction: float | None
    weight_decay: float | None
    lr_max: float | None
    lr_min: float | None
    val_loss_nats: float | None
    val_loss_sd: float | None
    val_loss_interval: Interval | None
    delta_nats: float | None
    delta_nats_interval: Interval | None
    delta_ll: float | None
    delta_ll_interval: Interval | None
    delta_ppx: float | None
    delta_ppx_interval: Interval | None
    n_seeds: int
    seeds: tuple[int, ...]
    paired_seeds: tuple[int, ...]
    run_ids: tuple[str, ...]
    matched: bool | None
    point: Mapping[str, Any]
    is_reference: bool
    is_best: bool
    diverged_seeds: tuple[int, ...]
    diverged_step: int | None
    status: str


@dataclass(frozen=True)
class Table1:
    """The rows, in the order of the sweep, with where they are compared and what a reader must know."""

    sweep: str
    baseline: str
    step: int | None
    split: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read(reader: Source, sweep: str | None = None, all_points: bool = False) -> Table1:
    """Table 1 of a sweep (the latest when None): each arm at its best point, or every point.

    Raises NlqError when there is no such sweep, it has no runs, or no run of its baseline.
    """
    return of(load(reader, sweep), all_points)


def of(selection: Selection, all_points: bool = False) -> Table1:
    """Table 1 of a sweep that has been read."""
    shown = [p for arm, ps in selection.points.items() for p in (ps if all_points else [selection.best[arm]])]
    rows = tuple(_row(selection, point) for point in shown)
    notes = (*_footer(selection), *remarks(selection))
    return Table1(
        selection.sweep.name, selection.sweep.baseline, selection.at.step, selection.at.show_split, rows, notes
    )


def sheet(table: Table1) -> Sheet:
    """Table 1 ready to be rendered; the lowest loss and its gains are bold."""
    best = min((r.val_loss_nats for r in table.rows if r.val_loss_nats is not None), default=None)
    marked = [(row, best is not None and row.val_loss_nats == best) for row in table.rows]
    return lay_out(f"{TITLE} ({table.sweep})", COLUMNS, marked, table.notes, asdict(table))


def _footer(selection: Selection) -> Iterator[str]:
    yield origin(selection)
    yield where(selection)
    if any(len(selection.counted(p)) > 1 for p in selection.best.values()):
        yield "± is the sd over n seeds; Δ are paired by seed with the baseline's best point"
    if any(len(selection.shown_traces(p)) < len(p.traces) for p in selection.best.values()):
        yield FRESH_ALONE


def _row(selection: Selection, point: GridPoint) -> Row:
    reference = point is selection.reference
    params, base_params = _params(point), _params(selection.reference)
    losses = selection.shown_losses(point)
    mean = summarise(losses.values())
    value = None if point.diverged else mean
    change = None if reference else compare(selection, point)
    spec = point.traces[0].member.run.spec.get("optim", {})
    return Row(
        arm=point.arm,
        label=_label(selection, point),
        non_embedding_params=params,
        delta_non_embedding_params=params - base_params if params and base_params else None,
        delta_non_embedding_fraction=params / base_params - 1 if params and base_params else None,
        weight_decay=spec.get("weight_decay"),
        lr_max=spec.get("lr_max"),
        lr_min=spec.get("lr_min"),
        val_loss_nats=value.mean if value else None,
        val_loss_sd=value.sd if value else None,
        val_loss_interval=value.interval if value else None,
        **_differences(change),
        n_seeds=len(losses),
        seeds=tuple(losses),
        run_ids=tuple(trace.member.run.run_id for trace in selection.shown_traces(point)),
        matched=change.matched if change else None if point.imported else True,
        point=dict(point.settings),
        is_reference=reference,
        is_best=point is selection.best[point.arm],
        diverged_seeds=tuple(trace.seed for trace in point.diverged),
        diverged_step=point.diverged_step,
        status=_status(point, mean),
    )


def _differences(change: Comparison | None) -> dict[str, Any]:
    delta = change.delta if change else None
    return {
        "delta_nats": delta.mean if delta else None,
        "delta_nats_interval": delta.interval if delta else None,
        "delta_ll": change.delta_ll if change else None,
        "delta_ll_interval": change.delta_ll_interval if change else None,
        "delta_ppx": change.delta_ppx if change else None,
        "delta_ppx_interval": change.delta_ppx_interval if change else None,
        "paired_seeds": change.seeds if change else (),
    }


def _params(point: GridPoint) -> int | None:
    known = (trace.member.run.non_embedding_params for trace in point.traces)
    return next((params for params in known if params is not None), None)


def _label(selection: Selection, point: GridPoint) -> str:
    """The arm's label, with the settings of the point that no column shows and that differ between its points."""
    rest = {name: value for name, value in point.settings.items() if name not in COLUMN_SETTINGS}
    differ = [n for n in rest if len({repr(p.settings.get(n)) for p in selection.points[point.arm]}) > 1]
    return point.label + "".join(f", {setting(name, rest[name])}" for name in differ)


def _status(point: GridPoint, mean: Mean | None) -> str:
    """In words: diverged, unfinished (with how far it came), without evaluation, or "completed"."""
    if point.diverged:
        return _diverged(point)
    if not point.finished:
        return _unfinished(point)
    return "completed" if mean else "no evaluation at the compared step"


def _diverged(point: GridPoint) -> str:
    at = "" if point.diverged_step is None else f" at step {point.diverged_step:,}"
    lost, of = len(point.diverged), len(point.traces)
    if of == 1:
        return f"diverged{at}"
    return f"{lost} of {of} seeds diverged" + (f", the first{at}" if at and lost > 1 else at)


def _unfinished(point: GridPoint) -> str:
    waiting = [trace.member.run for trace in point.traces if not trace.finished]
    if len(point.traces) == 1:
        run = waiting[0]
        return f"{run.state}, step {run.steps_done:,} of {run.steps_planned:,}" if run.steps_done else str(run.state)
    states = Counter(run.state for run in waiting)
    return f"{', '.join(f'{count} {state}' for state, count in states.items())} of {plural(len(point.traces), 'seed')}"


def _loss_cell(marked: tuple[Row, bool]) -> Cell:
    row, best = marked
    if row.diverged_seeds:
        return Cell(row.status)
    parts = [f"n={row.n_seeds}"] if row.val_loss_sd is not None else []
    parts += [row.status] if row.status != "completed" else []
    text = loss(row.val_loss_nats)
    if row.val_loss_sd is not None:
        text += f" ± {loss(row.val_loss_sd)}"
    return Cell(text + (f" ({', '.join(parts)})" if parts else ""), best)


def _change(marked: tuple[Row, bool], fraction: float | None) -> Cell:
    row, best = marked
    if row.is_reference:
        return Cell("ref.")
    return Cell(percent(fraction), best and fraction is not None)


COLUMNS: tuple[Column[tuple[Row, bool]], ...] = (
    Column("Config", "Config", lambda m: Cell(m[0].label), numeric=False),
    Column("Δ N.E. params", r"$\Delta$ N.E. params", lambda m: Cell(_params_text(m[0]))),
    Column("λ", r"$\lambda$", lambda m: Cell(plain(m[0].weight_decay))),
    Column("η_max", r"$\eta_{\max}$", lambda m: Cell(rate(m[0].lr_max))),
    Column("η_min", r"$\eta_{\min}$", lambda m: Cell(rate(m[0].lr_min))),
    Column("Val loss", "Val loss", _loss_cell),
    Column("ΔLL", r"$\Delta$LL", lambda m: _change(m, m[0].delta_ll)),
    Column("ΔPPX", r"$\Delta$PPX", lambda m: _change(m, m[0].delta_ppx)),
)


def _params_text(row: Row) -> str:
    return "0" if row.delta_non_embedding_params == 0 else percent(row.delta_non_embedding_fraction, sign=True)
