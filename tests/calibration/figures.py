"""Figures of a calibration: counted over sweeps that were read as real ones are, with intervals of their own."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from simulated_sweeps import RATE, RATES, SIGMA_NATS, Drawn, World

from nlq.stats.effects import Interval
from nlq.stats.evidence import Evidence, Finding, gather
from nlq.stats.verdict import Word

ANY = Interval(-math.inf, math.inf)
"""The target of a figure that is there to be known, not to be met."""
AT_MOST_5 = Interval(0.0, 0.05)
COVERAGE = Interval(0.93, 0.97)


class Sweep(NamedTuple):
    """One sweep's evidence beside the truth: δ in nats between the points that it chose, for each arm."""

    evidence: Evidence
    truth: Sequence[float]

    @property
    def finding(self) -> Finding:
        """Of the first arm."""
        return self.evidence.findings[0]


class Measure(NamedTuple):
    """What is asked of every sweep: yes or no (a rate), or a number (a mean; None leaves the sweep out)."""

    name: str
    ask: Callable[[Sweep], bool | float | None]
    target: Interval = ANY


class Figure(NamedTuple):
    """A rate or a mean over `sweeps`, with its 95 % interval (Clopper-Pearson, or Student's t) and its target."""

    name: str
    found: float
    interval: Interval
    target: Interval
    sweeps: int

    @property
    def misses(self) -> bool:
        """Whether all of its interval lies outside its target: a figure at its limit may fall beyond it by chance."""
        return self.interval.low > self.target.high or self.interval.high < self.target.low

    @property
    def word(self) -> str:
        """What the figure says of its target; "surely" where all of its interval lies inside."""
        if self.target == ANY:
            return "to know"
        if self.misses:
            return "misses"
        inside = [self.target.low <= value <= self.target.high for value in (self.found, *self.interval)]
        return "holds, surely" if all(inside) else "holds" if inside[0] else "within its error"


class Batch(NamedTuple):
    """Sweeps of one world, and what is asked of them."""

    world: World
    sweeps: int
    measures: tuple[Measure, ...]
    sigma_nats: float | None = None


def read(world: World, seed: int, sigma_nats: float | None = None) -> Sweep:
    """One simulated sweep as a report reads it."""
    drawn = Drawn(world, np.random.default_rng(seed))
    evidence = gather(drawn.source, sigma_nats=sigma_nats)
    at = {arm: drawn.miss(float(point.settings[RATE])) for arm, point in evidence.selection.best.items()}
    gains = (arm.gain_nats for arm in world.arms)
    truth = [g + at["baseline"] - at[f.point.arm] for g, f in zip(gains, evidence.findings, strict=True)]
    return Sweep(evidence, truth)


def run(batch: Batch, first_seed: int = 0) -> list[Figure]:
    """All figures of a batch; the same seeds give the same figures."""
    sweeps = [read(batch.world, first_seed + i, batch.sigma_nats) for i in range(batch.sweeps)]
    return [figure(measure, sweeps) for measure in batch.measures]


def figure(measure: Measure, sweeps: Iterable[Sweep]) -> Figure:
    """A rate where the answers are yes or no, else a mean."""
    answers = [answer for sweep in sweeps if (answer := measure.ask(sweep)) is not None]
    found, count = float(np.mean(answers)), len(answers)
    if all(isinstance(answer, bool | np.bool_) for answer in answers):
        ends = stats.binomtest(int(np.sum(answers)), count).proportion_ci(0.95, method="exact")
        return Figure(measure.name, found, Interval(ends.low, ends.high), measure.target, count)
    half = float(stats.t.ppf(0.975, count - 1) * np.std(answers, ddof=1) / math.sqrt(count))
    return Figure(measure.name, found, Interval(found - half, found + half), measure.target, count)


def better(sweep: Sweep) -> bool:
    """Whether any arm is called better."""
    return any(finding.verdict.word == Word.BETTER for finding in sweep.evidence.findings)


def equivalent(sweep: Sweep) -> bool:
    """Whether the arm is called equivalent."""
    return sweep.finding.verdict.word == Word.EQUIVALENT


def above_zero(sweep: Sweep) -> bool:
    """Whether the interval finds the gap: what `nlq power` promises, before δ_min is asked for."""
    return sweep.finding.joint is not None and sweep.finding.joint.low > 0


def covers(sweep: Sweep) -> bool | None:
    """Whether the arm's own interval holds δ between the points chosen."""
    ends = sweep.finding.effect.interval() if sweep.finding.effect else None
    return None if ends is None else ends.low <= sweep.truth[0] <= ends.high


def covers_zero(sweep: Sweep) -> bool | None:
    """Whether it holds 0: the difference of two arms that are the same, whatever points were chosen."""
    ends = sweep.finding.effect.interval() if sweep.finding.effect else None
    return None if ends is None else ends.low <= 0 <= ends.high


def covers_all(sweep: Sweep) -> bool:
    """Whether the intervals of all arms hold their δ together."""
    joint = zip((finding.joint for finding in sweep.evidence.findings), sweep.truth, strict=True)
    return all(ends is not None and ends.low <= truth <= ends.high for ends, truth in joint)


def chose_diverging(sweep: Sweep) -> bool:
    """Whether an arm's point is the rate that diverges."""
    return any(float(p.settings[RATE]) == max(RATES) for p in sweep.evidence.selection.best.values())


def bias(sweep: Sweep) -> float | None:
    """δ̂ minus the truth, in σ of the simulated runs."""
    effect = sweep.finding.effect
    return None if effect is None else (effect.delta_nats - sweep.truth[0]) / SIGMA_NATS


def bias_less_bound(sweep: Sweep) -> float | None:
    """The same of δ̂ less c_k σ."""
    raw, bound = bias(sweep), sweep.finding.flattery_nats
    return None if raw is None or bound is None else raw - bound / SIGMA_NATS


def bias_out_of_bag(sweep: Sweep) -> float | None:
    """The same of the gain out of bag."""
    corrected = sweep.finding.corrected
    return None if corrected is None else (corrected.delta_nats - sweep.truth[0]) / SIGMA_NATS
