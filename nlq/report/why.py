"""How the verdict on one arm comes about, step by step, with the numbers."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from nlq.core.errors import NlqError, nearest
from nlq.report._sheet import Cell, Column, Sheet
from nlq.report._sheet import sheet as lay_out
from nlq.report.budgets import expected, lowest
from nlq.report.evidence import sigma_notes, unconfirmed
from nlq.stats.evidence import Evidence, Finding, gather
from nlq.stats.origin import origin, where
from nlq.stats.paired import Clusters, Design, Effect, clustered_se, document_interval
from nlq.stats.printing import DASH, between, loss, nats, p_value, percent, plural, settings, z_value
from nlq.stats.seeds import ll_interval, ppx_interval
from nlq.stats.selection import GridPoint, Selection
from nlq.stats.source import Source
from nlq.stats.tuning import Cross, Optimum, cross, median_loss, tuning_loss
from nlq.stats.verdict import smallest_claim

RESAMPLES = 2000
"""Of documents, for the BCa interval."""


@dataclass(frozen=True)
class Row:
    """One step: what was asked, and what was found."""

    step: str
    found: str


@dataclass(frozen=True)
class Why:
    """The steps to one arm's verdict, in order."""

    sweep: str
    arm: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def read(reader: Source, arm: str, sweep: str | None = None, sigma_nats: float | None = None) -> Why:
    """The steps for one arm of a sweep (the latest when None).

    Raises NlqError when the sweep has no such arm, when it is the baseline, or as `stats.evidence.gather` does.
    """
    evidence = gather(reader, sweep, sigma_nats)
    findings = {finding.point.arm: finding for finding in evidence.findings}
    if arm not in findings:
        baseline = evidence.selection.sweep.baseline
        what = "is the baseline: the others are compared with it" if arm == baseline else "is no arm of the sweep"
        raise NlqError(f'"{arm}" {what}', nearest(arm, findings))
    return of(evidence, findings[arm])


def of(evidence: Evidence, finding: Finding) -> Why:
    """The steps for one finding of evidence that has been gathered."""
    rows = tuple(Row(step, found) for step, found in _steps(evidence, finding))
    selection = evidence.selection
    return Why(selection.sweep.name, finding.point.arm, rows, (origin(selection), where(selection)))


def sheet(why: Why) -> Sheet:
    """The steps ready to be rendered."""
    return lay_out(f"Why: {why.arm} ({why.sweep})", COLUMNS, why.rows, why.notes, asdict(why))


def _steps(evidence: Evidence, finding: Finding) -> Iterator[tuple[str, str]]:
    yield from _tuning(evidence, finding)
    if finding.effect:
        yield from _effect(finding.effect, finding.documents)
        yield from _together(evidence, finding)
    if text := unconfirmed(finding):
        yield "δ without confirmation, nats", text
    if finding.wins is not None:
        yield "share of pairs of seeds in which the arm is lower", percent(finding.wins)
    yield "verdict", str(finding.verdict.word)
    for reason in finding.verdict.reasons:
        yield "because", reason
    if finding.verdict.seeds_needed:
        yield "fresh seeds per arm still needed", str(finding.verdict.seeds_needed)
    yield "badges", ", ".join(finding.badges)


def _tuning(evidence: Evidence, finding: Finding) -> Iterator[tuple[str, str]]:
    selection, point = evidence.selection, finding.point
    yield "budget of the baseline, of the arm", f"{evidence.base_budget}; {finding.budget}"
    for what, best, found in (
        ("baseline's best point", selection.reference, evidence.base_optimum),
        ("arm's best point", point, finding.optimum),
    ):
        yield what, f"{settings(best.settings) or DASH}; {_optimum(found)}"
    yield from _cross(cross(selection, point.arm))
    yield "best against best, median against median (select)", _ranks(selection, point)
    for what, arm in (("baseline", selection.sweep.baseline), ("arm", point.arm)):
        yield f"{what}: expected best of k points", expected(selection, arm)
    if finding.flattery_nats is None:
        yield "choosing among points flatters by up to", "not known without replicates, nlq noise or --sigma"
    else:
        yield "choosing among points flatters by up to", f"{finding.flattery_nats:.4f} nats"


def _optimum(found: Optimum) -> str:
    return f"{found.tuned}; parabola in ln η: lowest at {lowest(found)}" if found.bowl else str(found.tuned)


def _cross(found: Cross) -> Iterator[tuple[str, str]]:
    """The 2×2 table, one line an optimum; a dash where an arm was not trained there."""
    for whose, base, other in (
        ("baseline's", found.base_at_base, found.other_at_base),
        ("arm's", found.base_at_other, found.other_at_other),
    ):
        gain = None if base is None or other is None else base - other
        yield f"at the {whose} optimum", f"baseline {loss(base)}, arm {loss(other)}: δ {nats(gain)}"


def _ranks(selection: Selection, point: GridPoint) -> str:
    """Losses that choose: of each arm's best point, and the median of its points."""
    best = (tuning_loss(selection, p) for p in (selection.reference, point))
    medians = (median_loss(selection, arm) for arm in (selection.sweep.baseline, point.arm))
    return "; ".join(" and ".join("+∞" if x == float("inf") else loss(x) for x in pair) for pair in (best, medians))


def _effect(effect: Effect, documents: Clusters | None) -> Iterator[tuple[str, str]]:
    yield "design", f"{effect.design}; {plural(len(effect.seeds), 'seed')}: {', '.join(map(str, effect.seeds))}"
    yield "δ = L_base − L", f"{nats(effect.delta_nats)} nats; L_base {loss(effect.baseline_nats)}"
    if effect.correlation is not None:
        helps = "pairing helps" if effect.correlation > 0 else "pairing does not help"
        yield "ρ̂ of the arms over seeds", f"{effect.correlation:.2f}: {helps}"
    if effect.sd_nats is not None:
        yield "sd of one difference over seeds", f"{effect.sd_nats:.5f} nats"
    yield "SE of the evaluation", _evaluation(effect)
    if documents is not None and (se := clustered_se(documents.sums_J, documents.tokens_J)) is not None:
        ends = document_interval(documents.sums_J, documents.tokens_J, draws=RESAMPLES)
        yield "over documents alone, clustered SE", f"{se:.5f} nats"
        yield f"over documents alone, BCa interval ({RESAMPLES:,} resamples)", between(ends, nats)
    if effect.se_nats is not None:
        yield "SE of both together", f"{effect.se_nats:.5f} nats, {effect.df:.1f} degrees of freedom"
    alone = effect.interval()
    yield "95 % interval of δ, this arm alone", between(alone, nats)
    yield "p, this arm alone", p_value(effect.p_value)


def _evaluation(effect: Effect) -> str:
    if effect.se_eval_nats is None:
        return "not known: no equal evaluations of two or more documents are kept"
    return f"{effect.se_eval_nats:.5f} nats, clustered by {plural(effect.documents or 0, 'document')}"


def _together(evidence: Evidence, finding: Finding) -> Iterator[tuple[str, str]]:
    effect, joint = finding.effect, finding.joint
    if effect is None:
        return
    yield "several arms", evidence.family
    yield "95 % interval of δ, all arms together", between(joint, nats)
    yield "p, all arms together", p_value(finding.p_joint)
    if joint is not None:
        yield "as ΔLL", between(ll_interval(joint, effect.baseline_nats), percent)
        yield "as ΔPPX", between(ppx_interval(joint), percent)
    yield "δ_min", f"{smallest_claim(effect):.4f} nats"
    yield "90 % interval of δ, for equivalence", between(finding.narrow, nats)
    if effect.design == Design.CHECKPOINTS and finding.z is not None:
        given = f" at σ = {evidence.sigma_nats:g} nats" if evidence.sigma_nats else ""
        yield "z against calibrated noise", f"{z_value(finding.z)}{given}, and no p: {effect.design}"
    for note in sigma_notes(evidence):
        yield "calibrated noise", note


COLUMNS: tuple[Column[Row], ...] = (
    Column("Step", "Step", lambda row: Cell(row.step), numeric=False),
    Column("Found", "Found", lambda row: Cell(row.found), numeric=False),
)
