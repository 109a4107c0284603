"""Every arm against the baseline with what the difference rests on: seeds, interval, budget, verdict (METHOD 4.8)."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.stats.calibrated import in_words
from nlq.stats.effects import Interval
from nlq.stats.evidence import Evidence, Finding, gather
from nlq.stats.origin import origin, remarks, where
from nlq.stats.paired import Design
from nlq.stats.printing import DASH, between, nats, p_value, percent, plural, z_value
from nlq.stats.seeds import ll_interval, ppx_interval
from nlq.stats.source import Source
from nlq.stats.tuning import Cross, cross
from nlq.stats.verdict import SMALLEST_CLAIM, Word

TITLE = "Evidence: each arm against the baseline"

SEEDS_ONLY = "the interval holds seeds only: no equal evaluations of two or more documents are kept"


@dataclass(frozen=True)
class Row:
    """An arm's evidence. Nats a token and fractions; None where there is nothing to say.

    `delta_*` are paired by seed where `design` says so. Intervals hold for all arms together at 95 %. `n_seeds` are
    behind the effect, `n_fresh` of them did not choose the point. `flattery_nats` is what choosing among points is
    expected to add to the gain, 0 on fresh seeds, `corrected_nats` the gain out of bag where there are none.
    `base_at_other_nats` is the baseline's loss at the arm's best point, and so on.
    `wins` is the share of pairs of seeds in which the arm is lower.
    """

    arm: str
    label: str
    point: Mapping[str, Any]
    n_seeds: int
    n_fresh: int
    n_diverged: int
    budget_points: int
    budget_seeds: int
    optimum: str
    optimum_lr_max: float | None
    design: str | None
    delta_nats: float | None
    delta_nats_interval: Interval | None
    se_nats: float | None
    se_eval_nats: float | None
    df: float | None
    seed_correlation: float | None
    delta_ll: float | None
    delta_ll_interval: Interval | None
    delta_ppx: float | None
    delta_ppx_interval: Interval | None
    p_value: float | None
    z: float | None
    wins: float | None
    flattery_nats: float | None
    corrected_nats: float | None
    base_at_base_nats: float | None
    base_at_other_nats: float | None
    other_at_base_nats: float | None
    other_at_other_nats: float | None
    verdict: str
    reasons: tuple[str, ...]
    seeds_needed: int | None
    badges: tuple[str, ...]
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The rows in the order of the sweep, the family that they are adjusted for, and what a reader must know."""

    sweep: str
    baseline: str
    step: int | None
    split: str
    family: str
    sigma_nats: float | None
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read(reader: Source, sweep: str | None = None, sigma_nats: float | None = None) -> Table:
    """The evidence of a sweep (the latest when None). Raises NlqError as `stats.evidence.gather` does."""
    return of(gather(reader, sweep, sigma_nats))


def of(found: Evidence) -> Table:
    """The table of evidence that has been gathered."""
    at = found.selection.at
    rows = tuple(_row(finding, cross(found.selection, finding.point.arm)) for finding in found.findings)
    record = found.selection.sweep
    return Table(
        record.name, record.baseline, at.step, at.show_split, found.family, found.sigma_nats, rows, tuple(_notes(found))
    )


def sheet(table: Table) -> Sheet:
    """The evidence ready to be rendered; only a verdict of "better" is bold."""
    return lay_out(f"{TITLE} ({table.sweep})", COLUMNS, table.rows, table.notes, asdict(table))


def _row(finding: Finding, crossed: Cross) -> Row:
    effect, point, joint = finding.effect, finding.point, finding.joint
    return Row(
        arm=point.arm,
        label=point.label,
        point=dict(point.settings),
        n_seeds=len(effect.seeds) if effect else 0,
        n_fresh=len(finding.fresh),
        n_diverged=len(point.diverged),
        budget_points=finding.budget.points,
        budget_seeds=finding.budget.seeds,
        optimum=str(finding.optimum.tuned),
        optimum_lr_max=finding.optimum.bowl.lr_max if finding.optimum.bowl else None,
        design=str(effect.design) if effect else None,
        delta_nats=effect.delta_nats if effect else None,
        delta_nats_interval=joint,
        se_nats=effect.se_nats if effect else None,
        se_eval_nats=effect.se_eval_nats if effect else None,
        df=effect.df if effect else None,
        seed_correlation=effect.correlation if effect else None,
        delta_ll=effect.delta_nats / effect.baseline_nats if effect else None,
        delta_ll_interval=ll_interval(joint, effect.baseline_nats) if joint and effect else None,
        delta_ppx=ppx_interval(Interval(effect.delta_nats, effect.delta_nats)).low if effect else None,
        delta_ppx_interval=ppx_interval(joint) if joint else None,
        p_value=finding.p_joint,
        z=finding.z,
        wins=finding.wins,
        flattery_nats=finding.flattery_nats,
        corrected_nats=finding.corrected.delta_nats if finding.corrected else None,
        base_at_base_nats=crossed.base_at_base,
        base_at_other_nats=crossed.base_at_other,
        other_at_base_nats=crossed.other_at_base,
        other_at_other_nats=crossed.other_at_other,
        verdict=str(finding.verdict.word),
        reasons=finding.verdict.reasons,
        seeds_needed=finding.verdict.seeds_needed,
        badges=finding.badges,
        run_ids=tuple(t.member.run.run_id for t in point.traces if not finding.fresh or t.seed in finding.fresh),
    )


def _notes(found: Evidence) -> Iterator[str]:
    yield origin(found.selection)
    yield where(found.selection)
    yield f"{found.family}; intervals 95 %, over seeds and documents; δ_min is {percent(SMALLEST_CLAIM)} of the loss"
    yield f"the baseline's budget: {found.base_budget}, {found.base_optimum.tuned}"
    for finding in found.findings:
        yield from _of_arm(finding)
    yield from sigma_notes(found)
    yield from remarks(found.selection)


def sigma_notes(found: Evidence) -> Iterator[str]:
    """Which σ stands in for seeds that a comparison does not have, or that none is kept."""
    if found.leans_on_noise and found.noise:
        yield f"from nlq noise: {in_words(found.noise)}"
    single = any(f.effect and f.effect.design == Design.CHECKPOINTS and f.z is None for f in found.findings)
    if single:
        yield "no σ is kept for runs of this size, text and length, so no z: nlq noise, or --sigma"


def _of_arm(finding: Finding) -> Iterator[str]:
    label, verdict = finding.point.label, finding.verdict
    more = f"; {plural(verdict.seeds_needed, 'more fresh seed')} needed" if verdict.seeds_needed else ""
    why = f": {'; '.join(verdict.reasons)}" if verdict.reasons else ""
    yield f"{label}: {verdict.word}{why}{more}"
    if finding.effect and finding.effect.se_eval_nats is None:
        yield f"{label}: {SEEDS_ONLY}"
    if finding.z is not None:
        yield f"{label}: z = {z_value(finding.z)} against the noise of a difference of two runs"
    if text := unconfirmed(finding):
        yield f"{label}: not confirmed: {text}"
    yield f"{label}: {', '.join(finding.badges)}"


def unconfirmed(finding: Finding) -> str:
    """The gain on the seeds that chose: naive, what the choice flatters by, and out of bag; dashes where unknown.

    Empty where nothing was chosen, where fresh seeds say it, and without a gain.
    """
    if finding.effect is None or (finding.corrected is None and finding.flattery_nats == 0):
        return ""
    naive = nats(finding.effect.delta_nats)
    bound = DASH if finding.flattery_nats is None else f"{finding.flattery_nats:.4f}"
    found = finding.corrected
    bag = f"{nats(found.delta_nats)} out of bag ({found})" if found else f"{DASH} out of bag"
    return f"naive δ {naive}, flattered by up to {bound} (c_k σ), {bag}"


def _effect_cell(value: float | None, text: str, ends: str) -> Cell:
    return Cell(DASH if value is None else f"{text} {ends}" if ends != DASH else text)


COLUMNS: tuple[Column[Row], ...] = (
    Column("Config", "Config", lambda row: Cell(row.label), numeric=False),
    Column("n", "n", lambda row: Cell(str(row.n_seeds))),
    Column("Budget", "Budget", lambda row: Cell(f"{row.budget_points} × {row.budget_seeds}")),
    Column("Optimum", "Optimum", lambda row: Cell(row.optimum), numeric=False),
    Column(
        "δ, nats",
        r"$\delta$, nats",
        lambda row: _effect_cell(row.delta_nats, nats(row.delta_nats), between(row.delta_nats_interval, nats)),
    ),
    Column(
        "ΔLL",
        r"$\Delta$LL",
        lambda row: _effect_cell(row.delta_ll, percent(row.delta_ll), between(row.delta_ll_interval, percent)),
    ),
    Column(
        "ΔPPX",
        r"$\Delta$PPX",
        lambda row: _effect_cell(row.delta_ppx, percent(row.delta_ppx), between(row.delta_ppx_interval, percent)),
    ),
    Column("p", "p", lambda row: Cell(p_value(row.p_value))),
    Column("Verdict", "Verdict", lambda row: Cell(row.verdict, row.verdict == Word.BETTER), numeric=False),
)
