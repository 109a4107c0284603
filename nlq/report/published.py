"""The paper's own Table 1 (arXiv 2603.13381v3), computed again from the losses that it prints."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.effects import Agreement, Interval, agreement, delta_ll, delta_ppx, reachable
from nlq.stats.printing import count, loss, percent, plain, rate
from nlq.stats.scaling import equivalent_params, local_exponent

TITLE = "Table 1 as published, computed from its printed losses"
SOURCE = "arXiv 2603.13381v3, Table 1: step 60,000, one run a row"

LOSS_DECIMALS = 4
PERCENT_DECIMALS = 2
CONTROL_PARAMS_RATIO = 1.125
"""The control's non-embedding parameters over the baseline's, as the paper states it (+12.5 %)."""

ROUNDED, RECOUNTED = "*", "†"


@dataclass(frozen=True)
class Effect:
    """One Δ: as computed from the printed losses and as the paper prints it, both fractions."""

    computed: float
    printed: float
    reach: Interval
    agreement: Agreement


@dataclass(frozen=True)
class Row:
    """One row of the paper. Loss in nats a token as printed; None where the paper has "ref."."""

    label: str
    arm: str
    non_embedding_params: int
    delta_non_embedding_params: int
    delta_non_embedding_fraction: float
    printed_non_embedding_fraction: float | None
    weight_decay: float
    lr_max: float
    lr_min: float
    val_loss_nats: float
    ll: Effect | None
    ppx: Effect | None


@dataclass(frozen=True)
class Published:
    """The paper's rows, and what its gain is worth in parameters by its own two-point scaling argument."""

    rows: tuple[Row, ...]
    exponent: float
    equivalent_params_ratio: float


def read() -> Published:
    """The published rows, from the data file beside this module."""
    text = files("nlq.report").joinpath("published_table1.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    rows = tuple(_row(line, lines[0]) for line in lines)
    base, control, best = rows[0], rows[1], min(rows, key=lambda row: row.val_loss_nats)
    exponent = local_exponent(base.val_loss_nats, control.val_loss_nats, CONTROL_PARAMS_RATIO)
    return Published(rows, exponent, equivalent_params(base.val_loss_nats, best.val_loss_nats, exponent))


def sheet(table: Published) -> Sheet:
    """The published table ready to be rendered, with the cells marked whose printed value differs."""
    best = min(row.val_loss_nats for row in table.rows)
    marked = [(row, row.val_loss_nats == best) for row in table.rows]
    notes = [SOURCE, *_footnotes(table), *_scaling(table)]
    return lay_out(TITLE, COLUMNS, marked, notes, _record(table, notes))


def _row(line: dict[str, str], base: dict[str, str]) -> Row:
    params, base_params = int(line["non_embedding_params"]), int(base["non_embedding_params"])
    printed = line["printed_params_percent"]
    return Row(
        label=line["label"],
        arm=line["arm"],
        non_embedding_params=params,
        delta_non_embedding_params=params - base_params,
        delta_non_embedding_fraction=params / base_params - 1,
        printed_non_embedding_fraction=float(printed) / 100 if printed else None,
        weight_decay=float(line["weight_decay"]),
        lr_max=float(line["lr_max"]),
        lr_min=float(line["lr_min"]),
        val_loss_nats=float(line["val_loss_nats"]),
        ll=_effect(delta_ll, line, base, line["printed_ll_percent"]),
        ppx=_effect(delta_ppx, line, base, line["printed_ppx_percent"]),
    )


def _effect(
    effect: Callable[[float, float], float], line: dict[str, str], base: dict[str, str], printed: str
) -> Effect | None:
    if not printed:
        return None
    losses = float(line["val_loss_nats"]), float(base["val_loss_nats"])
    value, reach = effect(*losses), reachable(effect, *losses, LOSS_DECIMALS)
    wide = Interval(100 * reach.low, 100 * reach.high)
    return Effect(value, float(printed) / 100, reach, agreement(float(printed), 100 * value, wide, PERCENT_DECIMALS))


def _effects(table: Published) -> Iterator[tuple[str, Row, Effect]]:
    for row in table.rows:
        for name, effect in (("ΔLL", row.ll), ("ΔPPX", row.ppx)):
            if effect:
                yield name, row, effect


def _footnotes(table: Published) -> Iterator[str]:
    for name, row, effect in _effects(table):
        if effect.agreement != Agreement.MATCH:
            yield (
                f"{ROUNDED} {row.label}, η_max {rate(row.lr_max)}: the paper prints {name} {percent(effect.printed)}; "
                f"the printed losses allow {100 * effect.reach.low:.3f} % to {100 * effect.reach.high:.3f} %"
                + (", so rounding explains it" if effect.agreement == Agreement.ROUNDING else ", so they disagree")
            )
    recounted = {row.label: row for row in table.rows if _recounted(row)}
    for row in recounted.values():
        yield (
            f"{RECOUNTED} {row.label}: the paper prints about {percent(row.printed_non_embedding_fraction)}; its code "
            f"adds {row.delta_non_embedding_params:,} to {table.rows[0].non_embedding_params:,}"
        )


def _scaling(table: Published) -> Iterator[str]:
    more = f"+{100 * (CONTROL_PARAMS_RATIO - 1):.1f} % N.E. parameters"
    yield f"local exponent {table.exponent:.4f}, two-point: baseline and MLP 4.75 at {more}, one run each"
    yield (
        f"equivalent parameters +{100 * (table.equivalent_params_ratio - 1):.1f} % N.E.: the best row's loss by that "
        "exponent, read beyond its only control"
    )


def _recounted(row: Row) -> bool:
    printed = row.printed_non_embedding_fraction
    return printed is not None and abs(printed - row.delta_non_embedding_fraction) > 0.00005


def _record(table: Published, notes: list[str]) -> dict[str, Any]:
    return {
        "source": SOURCE,
        "baseline": table.rows[0].arm,
        "rows": [_flat(row) for row in table.rows],
        "local_exponent": table.exponent,
        "equivalent_params_fraction": table.equivalent_params_ratio - 1,
        "notes": notes,
    }


def _flat(row: Row) -> dict[str, Any]:
    record = {key: value for key, value in asdict(row).items() if key not in ("ll", "ppx")}
    for name, effect in (("delta_ll", row.ll), ("delta_ppx", row.ppx)):
        record[name] = effect.computed if effect else None
        record[f"{name}_printed"] = effect.printed if effect else None
        record[f"{name}_reachable"] = effect.reach if effect else None
        record[f"{name}_agreement"] = effect.agreement.value if effect else None
    return record


def _effect_cell(effect: Effect | None, best: bool) -> Cell:
    if effect is None:
        return Cell("ref.")
    return Cell(percent(effect.computed), best, "" if effect.agreement == Agreement.MATCH else ROUNDED)


def _params_cell(row: Row) -> Cell:
    if not row.delta_non_embedding_params:
        return Cell(f"0 ({count(row.non_embedding_params)})")
    return Cell(percent(row.delta_non_embedding_fraction, sign=True), mark=RECOUNTED if _recounted(row) else "")


COLUMNS: tuple[Column[tuple[Row, bool]], ...] = (
    Column("Config", "Config", lambda m: Cell(m[0].label), numeric=False),
    Column("Δ N.E. params", r"$\Delta$ N.E. params", lambda m: _params_cell(m[0])),
    Column("λ", r"$\lambda$", lambda m: Cell(plain(m[0].weight_decay))),
    Column("η_max", r"$\eta_{\max}$", lambda m: Cell(rate(m[0].lr_max))),
    Column("η_min", r"$\eta_{\min}$", lambda m: Cell(rate(m[0].lr_min))),
    Column("Val loss", "Val loss", lambda m: Cell(loss(m[0].val_loss_nats), m[1])),
    Column("ΔLL", r"$\Delta$LL", lambda m: _effect_cell(m[0].ll, m[1])),
    Column("ΔPPX", r"$\Delta$PPX", lambda m: _effect_cell(m[0].ppx, m[1])),
)
