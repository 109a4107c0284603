"""Every arm of a sweep against the baseline: effect, tuning, family, verdict (METHOD section 4)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from nlq.core.noise import Noise
from nlq.stats.calibrated import Sigma, sigma_for
from nlq.stats.compare import UNKNOWN, compare, made_elsewhere
from nlq.stats.effects import Interval
from nlq.stats.families import correlation, critical, holm, joint_draws, joint_p
from nlq.stats.out_of_bag import Corrected, corrected
from nlq.stats.paired import (
    Clusters,
    Design,
    Effect,
    Floats,
    Score,
    beats,
    clusters,
    document_differences,
    effect,
    same_documents,
)
from nlq.stats.passes import in_words
from nlq.stats.printing import plural
from nlq.stats.selection import GridPoint, Selection, load
from nlq.stats.source import Source
from nlq.stats.tuning import Budget, Optimum, Tuned, budget, optimum, winners_curse
from nlq.stats.verdict import Case, Verdict, Word, decide

CONFIDENCE, TOST_CONFIDENCE = 0.95, 0.90
COUNT_MATCHED = 0.001
"""Non-embedding parameters within 0.1 % of the baseline's count as matched."""

Scores = Mapping[int, Score]


@dataclass(frozen=True)
class Finding:
    """One arm at its best point. Nats a token; None where there is nothing to say.

    `fresh` are seeds behind the effect that did not choose the point, `joint` the interval that holds for all arms
    together, `p_joint` the p-value adjusted likewise, `wins` the share of pairs of seeds in which the arm is lower,
    `flattery_nats` by how much the choice among points is expected to flatter it, 0 on fresh seeds, `corrected` the
    gain out of bag where the seeds that chose are those that show, `documents` the differences by document.
    """

    point: GridPoint
    budget: Budget
    optimum: Optimum
    effect: Effect | None
    fresh: tuple[int, ...]
    joint: Interval | None
    narrow: Interval | None
    p_joint: float | None
    wins: float | None
    flattery_nats: float | None
    z: float | None
    verdict: Verdict
    badges: tuple[str, ...]
    documents: Clusters | None = None
    corrected: Corrected | None = None


@dataclass(frozen=True)
class Evidence:
    """All findings, the baseline's own tuning, and the family that intervals and p-values hold for.

    `sigma_nats` was given; `noise` is the σ that was kept of runs of the same scale, in its place where there is none.
    """

    selection: Selection
    base_budget: Budget
    base_optimum: Optimum
    findings: tuple[Finding, ...]
    family: str
    sigma_nats: float | None
    noise: Noise | None = None

    @property
    def leans_on_noise(self) -> bool:
        """Whether a number rests on the σ that was kept: single runs, or a choice among points without replicates."""
        return self.noise is not None and self.sigma_nats is None and any(map(_without_replicates, self.findings))


@dataclass(frozen=True)
class _Joint:
    """Correlation of the arms' effects where all share seeds and documents, else None: Holm and Bonferroni."""

    correlation_AA: Floats | None  # noqa: N815
    arms: int

    def critical(self, df: float) -> float:
        if self.correlation_AA is None:
            return critical(df, np.eye(1), (1 - CONFIDENCE) / max(1, self.arms))
        return critical(df, self.correlation_AA, 1 - CONFIDENCE)

    @property
    def name(self) -> str:
        together = plural(self.arms, "arm") + " against one baseline"
        if self.arms < 2:
            return "one arm: no adjustment"
        if self.correlation_AA is None:
            return f"family: {together}; p by Holm, intervals by Bonferroni"
        return f"family: {together}; max-T, correlations by the joint bootstrap over seeds and documents"


def gather(source: Source, sweep: str | None = None, sigma_nats: float | None = None) -> Evidence:
    """The evidence of a sweep (the latest when None); σ of one run, in nats, where another than the kept one counts.

    Raises NlqError when there is no such sweep, it has no runs, or no run of its baseline.
    """
    selection = load(source, sweep)
    others = [point for arm, point in selection.best.items() if arm != selection.sweep.baseline]
    pairs = [_pair(source, selection, point) for point in others]
    alike = [not made_elsewhere(selection, point) for point in others]
    effects = [effect(*pair, alike=known) for pair, known in zip(pairs, alike, strict=True)]
    joint = _joint(pairs, effects)
    adjusted = _adjusted(effects, joint)
    sigma = sigma_for(selection, sigma_nats, source.noises())
    findings = [
        _corrected(source, selection, _finding(selection, *parts, joint, sigma))
        for parts in zip(others, pairs, effects, adjusted, strict=True)
    ]  # fmt: skip
    base = selection.sweep.baseline
    own = optimum(selection, base)
    return Evidence(selection, budget(selection.points[base]), own, tuple(findings), joint.name, sigma_nats, sigma.kept)


def _corrected(source: Source, selection: Selection, finding: Finding) -> Finding:
    """With the gain out of bag, unless fresh seeds say it or nothing was chosen."""
    chosen = max(len(selection.points[arm]) for arm in (selection.sweep.baseline, finding.point.arm)) > 1
    if finding.fresh or finding.effect is None or not chosen:
        return finding
    return replace(finding, corrected=corrected(source, selection, finding.point))


def _pair(source: Source, selection: Selection, point: GridPoint) -> tuple[Scores, Scores]:
    """Scores of the baseline's and the arm's best point; fresh seeds only, where both have some."""
    both = selection.reference, point
    fresh = [set(selection.fresh_seeds(p)) for p in both]
    keep: list[set[int]] = fresh if all(fresh) else [set(selection.losses(p)) for p in both]
    ours, theirs = (_scores(source, selection, p, seeds) for p, seeds in zip(both, keep, strict=True))
    return ours, theirs


def _scores(source: Source, selection: Selection, point: GridPoint, seeds: set[int]) -> Scores:
    step, split = selection.at.step, selection.at.show_split
    runs = {trace.seed: trace.member.run.run_id for trace in point.traces}
    losses = {seed: loss for seed, loss in selection.losses(point).items() if seed in seeds}
    return {
        seed: Score(loss, None if step is None else source.windows(runs[seed], step, split))
        for seed, loss in losses.items()
    }


def _joint(pairs: list[tuple[Scores, Scores]], effects: list[Effect | None]) -> _Joint:
    """The family's correlations, where every arm has the same seeds and all saw the same documents."""
    known = [(pair, found) for pair, found in zip(pairs, effects, strict=True) if found]
    if len(known) < 2 or len(known) < len(pairs) or len({(f.design, f.seeds) for _, f in known}) > 1:
        return _Joint(None, len(pairs))
    if known[0][1].design != Design.PAIRED:
        return _Joint(None, len(pairs))
    blocks = [_differences(pair, found.seeds) for pair, found in known]
    if any(block is None for block in blocks) or len({b.shape for b in blocks if b is not None}) > 1:
        return _Joint(None, len(pairs))
    first = next(iter(pairs[0][0].values())).windows
    tokens_J = clusters(first).tokens_J if first else np.ones(0, int)
    stacked_ASJ = np.stack([block for block in blocks if block is not None])
    return _Joint(correlation(joint_draws(stacked_ASJ, tokens_J), stacked_ASJ.shape[1]), len(pairs))


def _differences(pair: tuple[Scores, Scores], seeds: tuple[int, ...]) -> Floats | None:
    """Summed document differences by seed, (S, J) in nats; None where an evaluation is not kept or differs."""
    rows, first = [], None
    for seed in seeds:
        windows = [arm[seed].windows for arm in pair]
        ours, theirs = (clusters(w) if w is not None else None for w in windows)
        first = first or ours
        if ours is None or theirs is None or first is None:
            return None
        if not (same_documents(first, ours) and same_documents(ours, theirs)):
            return None
        rows.append(ours.sums_J - theirs.sums_J)
    return np.stack(rows)


def _adjusted(effects: list[Effect | None], joint: _Joint) -> list[float | None]:
    raw = [found.p_value if found else None for found in effects]
    if joint.correlation_AA is not None:
        related = joint.correlation_AA
        ts = [(f.delta_nats / f.se_nats, f.df) if f and f.se_nats else None for f in effects]
        return [joint_p(*t, related) if t else None for t in ts]
    adjusted = holm([1.0 if p is None else p for p in raw])  # an arm without a p still counts in the family
    return [None if p is None else one for p, one in zip(raw, adjusted, strict=True)]


def _finding(
    selection: Selection,
    point: GridPoint,
    pair: tuple[Scores, Scores],
    found: Effect | None,
    p_joint: float | None,
    joint: _Joint,
    sigma: Sigma,
) -> Finding:
    fresh = _fresh(selection, point, pair)
    together = found.interval_at(joint.critical(found.df)) if found else None
    narrow = found.interval(TOST_CONFIDENCE) if found else None
    refusals = tuple(_refusals(selection, point))
    wins = beats(*([s.loss_nats for s in arm.values()] for arm in pair)) if all(pair) else None
    verdict = Verdict(Word.UNDECIDED, (*_without(selection, point), *refusals))
    if found:
        verdict = decide(Case(found, together, narrow, len(fresh), refusals, max(1, joint.arms)))
    return Finding(
        point, budget(selection.points[point.arm]), optimum(selection, point.arm), found, fresh, together, narrow,
        p_joint, wins, _flattery(selection, point, fresh, sigma),
        found.z(sigma.alone) if found and sigma.alone and len(found.seeds) == 1 else None,
        verdict, tuple(_badges(selection, point, found, fresh)), _documents(pair, found),
    )  # fmt: skip


def _documents(pair: tuple[Scores, Scores], found: Effect | None) -> Clusters | None:
    """Of the seeds behind the effect."""
    seeds = found.seeds if found else ()
    base, other = ([score for seed, score in arm.items() if seed in seeds] for arm in pair)
    return document_differences(base, other)


def _fresh(selection: Selection, point: GridPoint, pair: tuple[Scores, Scores]) -> tuple[int, ...]:
    """Seeds behind the effect that are fresh on both sides (for Welch, as many as the arm with fewer)."""
    mine, base = (set(selection.fresh_seeds(p)) for p in (point, selection.reference))
    common = tuple(sorted(mine & base & pair[0].keys() & pair[1].keys()))
    return common or (tuple(sorted(mine))[: len(base)] if not pair[0].keys() & pair[1].keys() else ())


def _refusals(selection: Selection, point: GridPoint) -> Iterator[str]:
    """What forbids the words better and worse, whatever the intervals say."""
    if selection.preview:
        yield "no run is finished"
    ours, theirs = budget(selection.points[selection.sweep.baseline]), budget(selection.points[point.arm])
    if ours != theirs:
        yield f"budgets differ: {theirs} against the baseline's {ours}"
    if compare(selection, point).matched is False:
        yield "data are unmatched: other batches or other evaluation windows"
    if made_elsewhere(selection, point):
        yield f"imported: {UNKNOWN}"
    for arm in (selection.sweep.baseline, point.arm):
        found = optimum(selection, arm)
        if found.tuned != Tuned.INTERIOR:
            at = f" ({', '.join(found.axes)})" if found.axes else ""
            yield f"{selection.best[arm].label}: {found.tuned}{at}"


def _without(selection: Selection, point: GridPoint) -> Iterator[str]:
    """Why there is no effect: a diverged seed counts as +∞ and stays in the denominator."""
    lost = [p for p in (selection.reference, point) if p.diverged]
    for p in lost:
        yield f"{p.label}: {len(p.diverged)} of {plural(len(p.traces), 'seed')} diverged (+∞)"
    if not lost:
        yield "no seed in common, or none with a result"


def sigma_of(selection: Selection, arm: str) -> float | None:
    """Pooled sd over seeds within the arm's points on the split that selects, nats; None without replicates."""
    groups = [list(selection.losses(p, selection.at.select_split).values()) for p in selection.points[arm]]
    finite = [np.array(g) for g in groups if len(g) > 1 and all(map(math.isfinite, g))]
    df = sum(len(g) - 1 for g in finite)
    return math.sqrt(sum(float(g.var(ddof=1)) * (len(g) - 1) for g in finite) / df) if df else None


def _flattery(selection: Selection, point: GridPoint, fresh: tuple[int, ...], sigma: Sigma) -> float | None:
    size = budget(selection.points[point.arm])
    if fresh or size.points == 1:
        return 0.0
    nats = sigma.beside(sigma_of(selection, point.arm))
    return winners_curse(size.points, nats, max(1, size.seeds)) if nats else None


def _without_replicates(finding: Finding) -> bool:
    return finding.z is not None or (finding.budget.seeds < 2 and bool(finding.flattery_nats))


def _badges(selection: Selection, point: GridPoint, found: Effect | None, fresh: tuple[int, ...]) -> Iterator[str]:
    if found:
        n, chose = len(found.seeds), any(len(selection.points[p.arm]) > 1 for p in (selection.reference, point))
        how = "not confirmed on fresh ones" if len(fresh) < n else "confirmed" if chose else "nothing to choose"
        yield f"{plural(n, 'seed')}, {how}"
    base = optimum(selection, selection.sweep.baseline).tuned
    yield "baseline tuned" if base == Tuned.INTERIOR else "baseline not tuned"
    yield _count_badge(selection, point)
    speeds = [[t.member.run.tokens_per_s for t in selection.counted(p)] for p in (selection.reference, point)]
    yield "speed measured" if all(all(s) for s in speeds) else "speed not measured"
    yield "downstream not measured"
    ours, theirs = (in_words(p) for p in (point, selection.reference))
    yield ours if ours == theirs else f"{ours}; of the baseline {theirs}"


def _count_badge(selection: Selection, point: GridPoint) -> str:
    ours, theirs = (p.traces[0].member.run.non_embedding_params for p in (selection.reference, point))
    if not ours or not theirs:
        return "count unknown"
    return "count matched" if abs(theirs / ours - 1) <= COUNT_MATCHED else "count not matched"
