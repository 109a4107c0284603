"""How many seeds a gap needs, and which gap the usual numbers of seeds find (METHOD 4.3)."""

from dataclasses import asdict, dataclass

from nlq.core.errors import NlqError
from nlq.core.noise import Noise
from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.calibrated import in_words
from nlq.stats.power import MOST_SEEDS, seeds_needed, smallest_gap

TITLE = "Seeds per arm, and the smallest gap that they find"
USUAL = (2, 3, 5, 8, 10)
FOR_A_CLAIM = 5
ALPHA = 0.05


@dataclass(frozen=True)
class Row:
    """`smallest_gap_nats` is found with the table's power; `sign_flip_floor` is the least one-sided p, 2^-S."""

    seeds: int
    smallest_gap_nats: float
    sign_flip_floor: float


@dataclass(frozen=True)
class Power:
    """The rows, with what they rest on; `seeds_needed` is None where no gap was asked for."""

    sigma_nats: float
    power: float
    correlation: float | None
    arms: int
    gap_nats: float | None
    seeds_needed: int | None
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read(
    sigma_nats: float,
    gap_nats: float | None,
    power: float,
    correlation: float | None,
    arms: int,
    kept: Noise | None = None,
) -> Power:
    """The table for one sd of runs, of `kept` where it was measured here.

    Raises NlqError where a number makes no sense or no number of seeds is enough.
    """
    alpha = ALPHA / arms
    needed = None if gap_nats is None else seeds_needed(gap_nats, sigma_nats, power, correlation, alpha)
    counts = USUAL if needed is None else (needed,)
    rows = [Row(n, smallest_gap(n, sigma_nats, power, correlation, alpha), 0.5**n) for n in counts]
    design = "unpaired" if correlation is None else f"paired by seed, correlation {correlation:g}"
    family = "" if arms == 1 else f", {arms} arms against one baseline (Bonferroni)"
    notes = [f"σ = {sigma_nats:g} nats a run, power {power:g}, two-sided {100 * ALPHA:g} %, {design}{family}"]
    if kept is not None:
        notes.append(f"from nlq noise: {in_words(kept)}")
    if kept is not None and gap_nats is not None:
        ends = (_seeds(gap_nats, end, power, correlation, alpha) for end in (kept.low_nats, kept.high_nats))
        notes.append(f"at the ends of that interval: {' and '.join(ends)} seeds")
    if correlation is None:
        notes.append("nlq pairs by seed; where ρ is not known, --correlation 0 is what its sweeps find at least")
    if needed is not None and needed < FOR_A_CLAIM:
        notes.append(f"{needed} seeds find the gap; a verdict asks for {FOR_A_CLAIM} fresh ones all the same")
    return Power(sigma_nats, power, correlation, arms, gap_nats, needed, tuple(rows), tuple(notes))


def _seeds(gap_nats: float, sigma_nats: float, power: float, correlation: float | None, alpha: float) -> str:
    try:
        return str(seeds_needed(gap_nats, sigma_nats, power, correlation, alpha))
    except NlqError:
        return f"over {MOST_SEEDS:,}"


def sheet(table: Power) -> Sheet:
    """The table ready to be rendered."""
    title = TITLE if table.gap_nats is None else f"{table.rows[0].seeds} seeds per arm find {table.gap_nats:g} nats"
    return lay_out(title, COLUMNS, table.rows, table.notes, asdict(table))


COLUMNS: tuple[Column[Row], ...] = (
    Column("seeds per arm", "seeds per arm", lambda row: Cell(str(row.seeds))),
    Column("smallest gap, nats", "smallest gap, nats", lambda row: Cell(f"{row.smallest_gap_nats:.4f}")),
    Column("sign-flip floor", "sign-flip floor", lambda row: Cell(f"{row.sign_flip_floor:.2g}")),
)
