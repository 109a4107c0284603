"""Whether arms were tuned alike, and whether each arm's best point lies inside its grid (METHOD 4.4)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from nlq.core.errors import NlqError
from nlq.stats.power import best_of
from nlq.stats.printing import plural
from nlq.stats.selection import GridPoint, Selection, tuning_seeds

RATE = "optim.lr_max"
FEWEST_VALUES = 3
"""An axis of fewer values has no inside: of a learning rate that is a lack, of other settings a choice."""


class Budget(NamedTuple):
    """How much an arm was tuned: its points, and the seeds that all of them have."""

    points: int
    seeds: int

    def __str__(self) -> str:
        return f"{plural(self.points, 'point')} × {plural(self.seeds, 'seed')}"


class Tuned(StrEnum):
    """Where an arm's best point lies on its grid."""

    INTERIOR = "interior"
    EDGE = "edge: not tuned"
    UNTRIED = "one learning rate: not tuned"


class Bowl(NamedTuple):
    """A parabola in ln(learning rate): nats per (ln LR)², and its lowest point (rate, nats a token)."""

    curvature: float
    lr_max: float
    loss_nats: float

    def at(self, rate: float) -> float:
        """The parabola's loss at a learning rate, nats a token."""
        return self.loss_nats + self.curvature * math.log(rate / self.lr_max) ** 2


class Optimum(NamedTuple):
    """Where the best point lies; `axes` are the settings at an edge, `bowl` None without neighbours on both sides."""

    tuned: Tuned
    axes: tuple[str, ...]
    bowl: Bowl | None


class Cross(NamedTuple):
    """Mean losses (nats a token) of both arms at both optima; None where an arm was not trained there."""

    base_at_base: float | None
    base_at_other: float | None
    other_at_base: float | None
    other_at_other: float | None


class TuningCurves(NamedTuple):
    """By arm the best of k = 1 … n trials, nats a token, +inf where not finite; medians where `by_rank`, else means."""

    best: Mapping[str, list[float]]
    by_rank: bool


def budget(points: Sequence[GridPoint]) -> Budget:
    """Points, and seeds that every point has: fresh seeds of the chosen point confirm it, they do not tune."""
    return Budget(len(points), len(tuning_seeds(points)))


def further_seeds(selection: Selection, count: int) -> tuple[int, ...]:
    """`count` seeds that chose no arm's point: the first above all tuning seeds, so the same ones every time.

    Raises NlqError where nothing has been chosen: no arm has two points, or tuning runs have no result yet.
    """
    choices = [points for points in selection.points.values() if len(points) > 1]
    if not choices:
        raise NlqError("no arm has chosen among points: every seed is fresh already", "add seeds to the spec")
    if selection.preview or not all(p.settled(tuning_seeds(points)) for points in choices for p in points):
        raise NlqError("tuning is not finished: the best points may still change", "nlq work; nlq status")
    start = 1 + max(max(tuning_seeds(points)) for points in choices)
    return tuple(range(start, start + count))


def optimum(selection: Selection, arm: str) -> Optimum:
    """Whether the arm's best point lies inside its grid, along each axis with the other settings held.

    Every numeric axis of three or more values counts, and the learning rate always.
    """
    best = selection.best[arm]
    axes = [name for name, value in best.settings.items() if _number(value)]
    edges = [a for a in axes if len(_along(selection, best, a)) >= _needed(a) and not _inside(selection, best, a)]
    tried = RATE in axes and len(_along(selection, best, RATE)) > 1
    tuned = Tuned.EDGE if edges else Tuned.INTERIOR if tried else Tuned.UNTRIED
    return Optimum(tuned, tuple(edges), _bowl_of(selection, best) if tried else None)


def bowl(rates: Sequence[float], losses_nats: Sequence[float]) -> Bowl | None:
    """The parabola in ln(rate) through the lowest loss and its neighbours; None at an edge or where one diverged."""
    three = best_three(rates, losses_nats)
    if len(three) < 3 or not all(math.isfinite(loss) for _, loss in three):
        return None
    middle = math.log(three[1][0])
    x = [math.log(rate) - middle for rate, _ in three]
    a, b, c = (float(v) for v in np.polyfit(x, [loss for _, loss in three], 2))
    return Bowl(a, math.exp(middle - b / (2 * a)), c - b * b / (4 * a)) if a > 0 else None


def best_three(rates: Sequence[float], losses_nats: Sequence[float]) -> list[tuple[float, float]]:
    """The lowest loss and its neighbours as (rate, nats a token), by rate; fewer at an edge."""
    ordered = sorted(zip(rates, losses_nats, strict=True))
    lowest = min(range(len(ordered)), key=lambda i: ordered[i][1], default=0)
    return ordered[max(0, lowest - 1) : lowest + 2]


def expected_best(losses_nats: Iterable[float], count: int) -> float:
    """Expected lowest of `count` draws, with replacement, among these losses (Dodge et al. 2019, METHOD 4.4).

    Σ L_i [((n-i+1)/n)^k - ((n-i)/n)^k] over sorted losses; +inf when one diverged, for then it may be the only draw.
    """
    ordered = np.sort(np.array(list(losses_nats), dtype=float))
    if not np.isfinite(ordered).all():
        return math.inf
    ends = (np.arange(len(ordered), -1, -1) / len(ordered)) ** count
    return float(ordered @ (ends[:-1] - ends[1:]))


def median_best(losses_nats: Iterable[float], count: int) -> float:
    """Median lowest of `count` draws, with replacement, among these losses: a summary by rank, for where one diverged.

    The smallest L_i with 1 - ((n-i)/n)^k ≥ 1/2; +inf while most sets of k draws hold diverged runs alone.
    """
    ordered = np.sort(np.array(list(losses_nats), dtype=float))
    reached = 1 - (np.arange(len(ordered) - 1, -1, -1) / len(ordered)) ** count
    return float(ordered[np.argmax(reached >= 0.5)])


def tuning_curves(selection: Selection) -> TuningCurves:
    """Each arm's best of k = 1 … n trials, where a trial is a point with its tuning seeds, on the select split.

    Expected, as Dodge et al. have it, unless a trial of any arm diverged: then medians, which stay finite, for all.
    """
    tried = {
        arm: [x for p in ps if (x := tuning_loss(selection, p)) is not None] for arm, ps in selection.points.items()
    }
    by_rank = not all(math.isfinite(loss) for losses in tried.values() for loss in losses)
    best = median_best if by_rank else expected_best
    curves = {arm: [best(losses, k) for k in range(1, len(losses) + 1)] for arm, losses in tried.items()}
    return TuningCurves(curves, by_rank)


def winners_curse(points: int, sigma_nats: float, seeds: int) -> float:
    """By how many nats the best of equal points, chosen on the mean of `seeds`, is expected to be flattered."""
    return best_of(points) * sigma_nats / math.sqrt(seeds)


def cross(selection: Selection, arm: str) -> Cross:
    """The baseline and an arm, each at its own optimum and at the other's, on the shown split and the seeds of all."""
    base, other = selection.reference, selection.best[arm]
    there = _same_settings(selection.points[base.arm], other), _same_settings(selection.points[arm], base)
    found = [selection.losses(p) if p else None for p in (base, *there, other)]
    common = set.intersection(*(set(losses) for losses in found if losses is not None))
    return Cross(*(_mean({s: losses[s] for s in common}) if losses else None for losses in found))


def median_loss(selection: Selection, arm: str) -> float | None:
    """Median over an arm's points of the losses that choose, nats a token; by rank, so a diverged point counts +∞."""
    found = sorted(x for p in selection.points[arm] if (x := tuning_loss(selection, p)) is not None)
    return (found[(len(found) - 1) // 2] + found[len(found) // 2]) / 2 if found else None


def tuning_loss(selection: Selection, point: GridPoint) -> float | None:
    """Mean over tuning seeds on the select split, nats a token; +inf where one diverged, None without a result."""
    return _mean(selection.tuning_losses(point))


def held(selection: Selection, point: GridPoint, axis: str = RATE) -> list[GridPoint]:
    """Points of the arm, this one among them, whose settings are this one's but for one axis."""
    fixed = {name: value for name, value in point.settings.items() if name != axis}
    return [p for p in selection.points[point.arm] if all(p.settings.get(n) == v for n, v in fixed.items())]


def peak_rate(point: GridPoint) -> float | None:
    """The point's peak learning rate, by its place in the grid or by the spec of its runs; None where not known."""
    value = point.settings.get(RATE, point.traces[0].member.run.spec.get("optim", {}).get("lr_max"))
    return float(value) if _number(value) else None


def _mean(losses: Mapping[int, float]) -> float | None:
    return sum(losses.values()) / len(losses) if losses else None


def _needed(axis: str) -> int:
    return 2 if axis == RATE else FEWEST_VALUES


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _along(selection: Selection, best: GridPoint, axis: str) -> dict[float, float]:
    """Mean selection losses by value of one axis, the other settings as at the best point; pending ones left out."""
    found: dict[float, float] = {}
    for point in held(selection, best, axis):
        loss = tuning_loss(selection, point)
        if loss is not None and _number(point.settings.get(axis)):
            found[float(point.settings[axis])] = loss
    return found


def _inside(selection: Selection, best: GridPoint, axis: str) -> bool:
    values, own = _along(selection, best, axis), float(best.settings[axis])
    return bool(values) and min(values) < own < max(values)


def _bowl_of(selection: Selection, best: GridPoint) -> Bowl | None:
    found = _along(selection, best, RATE)
    return bowl(list(found), list(found.values())) if found else None


def _same_settings(points: Iterable[GridPoint], like: GridPoint) -> GridPoint | None:
    return next((point for point in points if dict(point.settings) == dict(like.settings)), None)
