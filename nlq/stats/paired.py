"""The difference between two arms on identical documents, over seeds, and both together (METHOD 4.2 and 4.3).

δ = L_base - L in nats a token, positive where the other arm is better.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from nlq.core.run import WindowLosses
from nlq.stats.effects import Interval

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Clusters(NamedTuple):
    """An evaluation by document: ids, summed losses (nats) and predicted tokens, each of length J."""

    ids_J: Counts  # noqa: N815
    sums_J: Floats  # noqa: N815
    tokens_J: Counts  # noqa: N815


class Score(NamedTuple):
    """One seed of an arm: its loss (nats a token, +inf where diverged) and its evaluation, None where not kept."""

    loss_nats: float
    windows: WindowLosses | None = None


class Design(StrEnum):
    """Which variation an interval holds."""

    PAIRED = "paired by seed"
    WELCH = "unpaired (Welch)"
    CHECKPOINTS = "one seed: compares two checkpoints, not two architectures"


class Effect(NamedTuple):
    """δ with what its interval is made of; nats a token, None where a part is not known.

    `sd_nats` is the sd over seeds of one difference (for Welch √(s_base² + s_other²)), `se_eval_nats` the document-
    clustered SE of the evaluation beyond what differs from seed to seed, which `sd_nats` holds already, `se_nats` both
    together with `df` degrees of freedom. `correlation` is ρ̂ between the
    arms over common seeds, `wins` the share of pairs of seeds in which the other arm is lower.
    """

    delta_nats: float
    baseline_nats: float
    design: Design
    seeds: tuple[int, ...]
    sd_nats: float | None
    se_eval_nats: float | None
    se_nats: float | None
    df: float
    documents: int | None
    correlation: float | None
    wins: float

    def interval(self, confidence: float = 0.95) -> Interval | None:
        """Student's t interval of δ in nats; with one seed it is about these two checkpoints only."""
        critical = float(stats.t.ppf(0.5 + confidence / 2, self.df)) if self.se_nats is not None else math.nan
        return self.interval_at(critical)

    def interval_at(self, critical: float) -> Interval | None:
        """δ ± `critical` standard errors, in nats."""
        if self.se_nats is None or not math.isfinite(critical):
            return None
        half = critical * self.se_nats
        return Interval(self.delta_nats - half, self.delta_nats + half)

    @property
    def p_value(self) -> float | None:
        """Two-sided, of δ = 0; None with one seed, which says nothing of architectures."""
        if self.design == Design.CHECKPOINTS or not self.se_nats:
            return None
        return 2 * float(stats.t.sf(abs(self.delta_nats) / self.se_nats, self.df))

    def z(self, sigma_nats: float) -> float:
        """δ of single runs in units of the calibrated noise of a difference of two, √2 σ (METHOD 4.3)."""
        return self.delta_nats / (math.sqrt(2) * sigma_nats)


def clusters(windows: WindowLosses) -> Clusters:
    """The evaluation's documents, or its windows where bounds of documents are unknown."""
    if len(windows.doc_ids):
        return Clusters(windows.doc_ids, windows.doc_sums, windows.doc_tokens)
    return Clusters(np.arange(len(windows.window_sums)), windows.window_sums, windows.window_tokens)


def clustered_se(sums_J: Floats, tokens_J: Counts) -> float | None:
    """SE of D = Σd/Σn over G clusters: SE² = G/(G-1) Σ(d - D n)² / (Σn)², nats a token (METHOD 4.2).

    The ratio estimator's linearised variance, as for clustered standard errors in Miller, arXiv 2411.00640.
    None with fewer than two clusters.
    """
    groups = len(sums_J)
    if groups < 2:
        return None
    total = float(tokens_J.sum())
    residuals_J = sums_J - float(sums_J.sum()) / total * tokens_J
    return math.sqrt(groups / (groups - 1) * float(residuals_J @ residuals_J)) / total


def document_interval(sums_J: Floats, tokens_J: Counts, confidence: float = 0.95, draws: int = 2000) -> Interval:
    """BCa bootstrap interval (Efron 1987) of Σd/Σn over documents, nats a token; seeded, so the same every time."""

    def ratio(d: Floats, n: Floats, axis: int = -1) -> Floats:
        return np.asarray(d.sum(axis) / n.sum(axis))

    middle = float(sums_J.sum() / tokens_J.sum())
    if np.allclose(sums_J, middle * tokens_J, atol=1e-12):
        return Interval(middle, middle)  # nothing varies, and BCa would divide by 0
    found = stats.bootstrap(
        (sums_J, tokens_J.astype(float)), ratio, paired=True, vectorized=True, n_resamples=draws, batch=100,
        confidence_level=confidence, method="BCa", rng=np.random.default_rng(0),
    )  # fmt: skip
    return Interval(float(found.confidence_interval.low), float(found.confidence_interval.high))


def averaged(evaluations: Sequence[WindowLosses | None]) -> Clusters | None:
    """The mean over seeds by document; None where one was not kept or they differ in documents."""
    found = [clusters(windows) for windows in evaluations if windows is not None]
    if not found or len(found) < len(evaluations) or not all(same_documents(found[0], one) for one in found):
        return None
    return found[0]._replace(sums_J=np.mean([one.sums_J for one in found], axis=0))


def document_differences(base: Sequence[Score], other: Sequence[Score]) -> Clusters | None:
    """Seed-averaged differences by document, in nats; None where evaluations are not kept or differ in documents."""
    ours, theirs = (averaged([score.windows for score in arm]) for arm in (base, other))
    if ours is None or theirs is None or not same_documents(ours, theirs):
        return None
    return ours._replace(sums_J=ours.sums_J - theirs.sums_J)


def same_documents(one: Clusters, other: Clusters) -> bool:
    """Whether both evaluations predicted the same number of tokens of the same documents."""
    return np.array_equal(one.ids_J, other.ids_J) and np.array_equal(one.tokens_J, other.tokens_J)


def effect(base: Mapping[int, Score], other: Mapping[int, Score], *, alike: bool = True) -> Effect | None:
    """δ between two arms by seed: paired over two or more common seeds, else by Welch. By Welch too unless a seed is
    `alike` in both arms, the same order of the same data.

    ρ̂ does not choose the design: to take Welch's interval wherever ρ̂ ≤ 0 covers 93.5 % (ρ = 0) to 91.9 % (ρ = -0.3)
    instead of 95 %, five seeds an arm, 40,000 draws; pairing where it does not help costs width only.
    None without seeds, or where a seed diverged: its loss is +inf, and no mean is left.
    """
    if not base or not other or not all(math.isfinite(s.loss_nats) for s in [*base.values(), *other.values()]):
        return None
    common = tuple(sorted(base.keys() & other.keys()))
    if (len(common) < 2 or not alike) and min(len(base), len(other)) > 1:
        return unpaired(base, other)
    return _paired(base, other, common) if common else None


def unpaired(base: Mapping[int, Score], other: Mapping[int, Score]) -> Effect:
    """δ by Welch's t: seeds of both arms are independent. Both need two seeds or more, all finite."""
    ours, theirs = list(base.values()), list(other.values())
    variances = [float(_losses(arm).var(ddof=1)) for arm in (ours, theirs)]
    parts = [(v / len(arm), len(arm) - 1.0) for v, arm in zip(variances, (ours, theirs), strict=True)]
    seeds = tuple(sorted(base.keys() | other.keys()))
    return _effect(ours, theirs, Design.WELCH, seeds, math.sqrt(sum(variances)), parts, _correlation(base, other))


def _paired(base: Mapping[int, Score], other: Mapping[int, Score], seeds: tuple[int, ...]) -> Effect:
    ours, theirs = ([arm[seed] for seed in seeds] for arm in (base, other))
    if len(seeds) == 1:
        return _effect(ours, theirs, Design.CHECKPOINTS, seeds, None, [], None)
    variance = float((_losses(ours) - _losses(theirs)).var(ddof=1))
    parts = [(variance / len(seeds), len(seeds) - 1.0)]
    return _effect(ours, theirs, Design.PAIRED, seeds, math.sqrt(variance), parts, _correlation(base, other))


def _effect(
    ours: list[Score],
    theirs: list[Score],
    design: Design,
    seeds: tuple[int, ...],
    sd: float | None,
    parts: list[tuple[float, float]],
    rho: float | None,
) -> Effect:
    se_eval, documents = _evaluation(ours, theirs, design)
    if se_eval is not None and documents is not None:
        parts = [*parts, (se_eval**2, documents - 1.0)]
    base, other = _losses(ours), _losses(theirs)
    se = math.sqrt(sum(v for v, _ in parts)) if parts else None
    delta, wins = float(base.mean() - other.mean()), beats(base, other)
    return Effect(
        delta, float(base.mean()), design, seeds, sd, se_eval, se, welch_satterthwaite(parts), documents, rho, wins
    )


def welch_satterthwaite(parts: Iterable[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of independent variances, given as (variance, df): (Σv)² / Σ(v²/df); inf of none."""
    known = list(parts)
    below = sum(v * v / df for v, df in known)
    return sum(v for v, _ in known) ** 2 / below if below else (min((df for _, df in known), default=math.inf))


def beats(base: Iterable[float], other: Iterable[float]) -> float:
    """Share of all pairs of seeds in which `other` is lower, ties counting half; a diverged one (+inf) stays in.

    An estimate of P(the variant beats the baseline on fresh seeds) (Bouthillier et al., arXiv 2103.03098).
    """
    ours, theirs = np.array(list(base))[:, None], np.array(list(other))[None, :]
    return float(np.mean(ours > theirs) + 0.5 * np.mean(ours == theirs))


def _evaluation(ours: list[Score], theirs: list[Score], design: Design) -> tuple[float | None, int | None]:
    """SE of the seed-averaged document differences, and how many documents there are.

    A run's own deviations on documents are in the variance over seeds already. Counted twice, intervals would cover
    99 % where they are most of that variance; so the SE is of what documents differ by beyond them, as the variance of
    two crossed clusterings has that of the cells taken off (Cameron, Gelbach and Miller 2011).
    """
    apart = document_differences(ours, theirs)
    if apart is None:
        return None, None
    se = clustered_se(apart.sums_J, apart.tokens_J)
    own = sum(_of_runs(rows_SJ, apart.tokens_J) for rows_SJ in _rows(ours, theirs, design))
    return None if se is None else math.sqrt(max(0.0, se**2 - own)), len(apart.ids_J)


def _rows(ours: list[Score], theirs: list[Score], design: Design) -> Iterator[Floats]:
    """What varies independently over seeds, as document sums (S, J): differences of pairs, or each arm by itself."""
    base, other = (np.stack([clusters(s.windows).sums_J for s in arm if s.windows]) for arm in (ours, theirs))
    yield from (base - other,) if design == Design.PAIRED else (base, other)


def _of_runs(sums_SJ: Floats, tokens_J: Counts) -> float:
    """A seed average's clustered variance that comes from runs differing by document; 0 for one of either."""
    seeds, groups = sums_SJ.shape
    if min(seeds, groups) < 2:
        return 0.0
    total = float(tokens_J.sum())
    residuals_SJ = sums_SJ - np.outer(sums_SJ.sum(1) / total, tokens_J)
    between = residuals_SJ.var(axis=0, ddof=1).sum()
    return float(groups / (groups - 1) * between / seeds / total**2)


def _correlation(base: Mapping[int, Score], other: Mapping[int, Score]) -> float | None:
    """ρ̂ over common seeds; None below three, where it says nothing, or where an arm does not vary."""
    common = sorted(base.keys() & other.keys())
    if len(common) < 3:
        return None
    pair = np.array([[arm[seed].loss_nats for seed in common] for arm in (base, other)])
    return None if not pair.std(axis=1).all() else float(np.corrcoef(pair)[0, 1])


def _losses(scores: Iterable[Score]) -> Floats:
    return np.array([score.loss_nats for score in scores])
