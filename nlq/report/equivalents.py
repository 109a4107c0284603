"""What each arm's gain is worth in parameters, tokens, FLOPs and time of the baseline (METHOD 4.6)."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.controls import Worth, controls, worths
from nlq.stats.effects import Interval
from nlq.stats.equivalents import FEWEST_SIZES, Equivalent
from nlq.stats.lengths import ENOUGH, Saving, SpeedUp, lengths, savings, tokens_of
from nlq.stats.origin import origin, remarks, where
from nlq.stats.printing import DASH, count, loss
from nlq.stats.selection import GridPoint, Selection, load
from nlq.stats.source import Source

TITLE = "Equivalents of the baseline"


@dataclass(frozen=True)
class Row:
    """An arm; `equivalent` is in words, `ratio` and its 95 % interval times the baseline's non-embedding parameters.

    `floor_*` are of losses above the E that was stated. `tokens`, `flops` and `seconds` are in words, their ratios
    what the baseline needs of each for the arm's loss over what the arm took. Outside the controls (`bracketed` false)
    ratios are extrapolated. None where it cannot be said, for `lack` and `lack_of_lengths`.
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
    floor_equivalent: str | None
    floor_ratio: float | None
    floor_ratio_interval: Interval | None
    floor_exponent: float | None
    tokens: str | None
    tokens_ratio: float | None
    tokens_ratio_interval: Interval | None
    flops: str | None
    flops_ratio: float | None
    flops_ratio_interval: Interval | None
    seconds: str | None
    seconds_ratio: float | None
    seconds_ratio_interval: Interval | None
    lengths_bracket: bool | None
    lack_of_lengths: str | None


@dataclass(frozen=True)
class Table:
    """The rows in the order of the sweep, the controls and lengths that they rest on, and the E that was stated."""

    sweep: str
    controls: tuple[str, ...]
    lengths: tuple[str, ...]
    floor_nats: float | None
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read(
    reader: Source, sweep: str | None = None, sigma_nats: float | None = None, floor_nats: float | None = None
) -> Table:
    """Equivalents of a sweep (the latest when None). Raises NlqError as `stats.selection.load` does."""
    return of(reader, load(reader, sweep), sigma_nats, floor_nats)


def of(reader: Source, selection: Selection, sigma_nats: float | None = None, floor_nats: float | None = None) -> Table:
    """Equivalents of a sweep that has been read."""
    sized = {found.point.arm: found for found in worths(reader, selection, sigma_nats, floor_nats)}
    timed = {found.point.arm: found for found in savings(reader, selection, sigma_nats)}
    arms = [arm for arm in selection.best if arm in sized or arm in timed]
    rows = tuple(
        _row(selection.best[arm], sized.get(arm), timed.get(arm)) for arm in arms if arm in sized or timed[arm].tokens
    )
    labels = tuple(point.label for point in controls(selection))
    spans = tuple(f"{p.label} {count(tokens_of(p) or 0)}" for p in lengths(selection))
    notes = tuple(_notes(selection, labels, spans, rows, floor_nats))
    return Table(selection.sweep.name, labels, spans, floor_nats, rows, notes)


def sheet(table: Table) -> Sheet:
    """The table ready to be rendered."""
    columns = COLUMNS if table.floor_nats is None else (*COLUMNS[:6], *_FLOOR, *COLUMNS[6:])
    return lay_out(f"{TITLE} ({table.sweep})", columns, table.rows, table.notes, asdict(table))


def _row(point: GridPoint, sized: Worth | None, timed: Saving | None) -> Row:
    run = point.traces[0].member.run
    worth, above = (sized.equivalent, sized.at_floor) if sized else (None, None)
    tokens = timed.tokens if timed else None
    return Row(
        arm=point.arm,
        label=point.label,
        non_embedding_params=run.non_embedding_params,
        total_params=run.total_params,
        val_loss_nats=_loss(sized, timed),
        **_params("", worth),
        sizes=worth.sizes if worth else None,
        bracketed=worth.bracketed if worth else None,
        lack=sized.lack if sized else None,
        **_params("floor_", above),
        **_ratio("tokens", tokens),
        **_ratio("flops", timed.flops if timed else None),
        **_ratio("seconds", timed.seconds if timed else None),
        lengths_bracket=tokens.bracketed if tokens else None,
        lack_of_lengths=timed.lack if timed else None,
    )


def _loss(sized: Worth | None, timed: Saving | None) -> float | None:
    """Where arms are compared, or at the arm's own end."""
    compared, own = (found.loss_nats if found else None for found in (sized, timed))
    return own if compared is None else compared


def _params(prefix: str, worth: Equivalent | None) -> Mapping[str, Any]:
    values = (str(worth), worth.ratio, worth.interval, worth.exponent) if worth else (None,) * 4
    names = ("equivalent", "ratio", "ratio_interval", "exponent")
    return {f"{prefix}{name}": value for name, value in zip(names, values, strict=True)}


def _ratio(name: str, worth: SpeedUp | None) -> Mapping[str, Any]:
    values = (str(worth), worth.ratio, worth.interval) if worth else (None,) * 3
    return dict(zip((name, f"{name}_ratio", f"{name}_ratio_interval"), values, strict=True))


def _notes(
    selection: Selection,
    labels: tuple[str, ...],
    spans: tuple[str, ...],
    rows: tuple[Row, ...],
    floor_nats: float | None,
) -> Iterator[str]:
    yield origin(selection)
    yield where(selection)
    how = "local fit of ln L on ln N" if len(labels) >= FEWEST_SIZES else "two points: Fieller's interval"
    yield f"controls, of non-embedding parameters: {', '.join(labels)}; {how}; ≥ where they do not reach the loss"
    if floor_nats is not None:
        yield f"at E: the same fit of ln(L − E), E = {floor_nats:g} nats as stated"
    if len(spans) > 1:
        much = "" if len(spans) >= ENOUGH else f"; {ENOUGH} are asked for"
        yield (
            f"tokens, each a training with a complete decay of its own, read at its end: {', '.join(spans)}{much}; "
            "what the baseline needs over what the arm took; ln D over ln L, straight between lengths"
        )
    for row in rows:
        if row.lack:
            yield f"{row.label}: {row.lack}"
    for lack, arms in _by_lack(rows).items():
        yield f"no tokens, FLOPs, time ({', '.join(arms)}): {lack}"
    yield from remarks(selection)


def _by_lack(rows: tuple[Row, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.lack_of_lengths:
            found.setdefault(row.lack_of_lengths, []).append(row.label)
    return found


COLUMNS: tuple[Column[Row], ...] = (
    Column("Config", "Config", lambda row: Cell(row.label), numeric=False),
    Column("N.E. params", "N.E. params", lambda row: Cell(_count(row.non_embedding_params))),
    Column("All params", "All params", lambda row: Cell(_count(row.total_params))),
    Column("Val loss", "Val loss", lambda row: Cell(loss(row.val_loss_nats))),
    Column("Equivalent N.E. params", "Equivalent N.E. params", lambda row: Cell(row.equivalent or DASH)),
    Column("α", r"$\alpha$", lambda row: Cell(_alpha(row.exponent))),
    Column("Tokens", "Tokens", lambda row: Cell(row.tokens or DASH)),
    Column("FLOPs", "FLOPs", lambda row: Cell(row.flops or DASH)),
    Column("Time", "Time", lambda row: Cell(row.seconds or DASH)),
)

_FLOOR: tuple[Column[Row], ...] = (
    Column("at E", "at $E$", lambda row: Cell(row.floor_equivalent or DASH)),
    Column("α at E", r"$\alpha$ at $E$", lambda row: Cell(_alpha(row.floor_exponent))),
)


def _alpha(exponent: float | None) -> str:
    return DASH if exponent is None else f"{exponent:.3f}"


def _count(params: int | None) -> str:
    return DASH if params is None else count(params)
