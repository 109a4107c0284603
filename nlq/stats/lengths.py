"""What an arm's loss is worth in tokens, FLOPs and time of the baseline, by baselines of other lengths (METHOD 4.6).

Each length is a training of its own whose learning rate has decayed to its end. Reading along one run, whose rate has
not decayed yet, would flatter the arm, and is refused.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nlq.core.errors import NlqError
from nlq.stats.alike import other_length
from nlq.stats.calibrated import sigma_for
from nlq.stats.documents import Block, block, whole
from nlq.stats.effects import Interval
from nlq.stats.equivalents import percentiles
from nlq.stats.families import joint_draws
from nlq.stats.paired import Floats
from nlq.stats.selection import GridPoint, Selection, tuning_seeds
from nlq.stats.source import Source

ENOUGH = 3
"""Lengths; two are labelled "two-point"."""


class SpeedUp(NamedTuple):
    """The baseline needs `ratio` times as much for the same loss; the 95 % interval is None where nothing bounds it.

    `reach` is the nearest ratio that the baselines have trained to: a bound where they do not bracket the loss.
    """

    ratio: float
    interval: Interval | None
    lengths: int
    reach: float
    bracketed: bool

    def __str__(self) -> str:
        """As "1.42× [1.31, 1.55]"; outside the bracket first "≥" or "≤" what the baselines reach."""
        ends = f" [{_times(self.interval.low)}, {_times(self.interval.high)}]" if self.interval else ""
        text = f"{_times(self.ratio)}×{ends}"
        two = "two-point" if self.lengths < ENOUGH else ""
        if self.bracketed:
            return f"{text} ({two})" if two else text
        sign = "≥" if self.ratio > self.reach else "≤"
        return f"{sign} {_times(self.reach)}× ({', '.join(filter(None, (two, f'extrapolated {text}')))})"


class Saving(NamedTuple):
    """An arm's longest training, its loss at its end, and what that is worth, or in `lack` why it cannot be said."""

    point: GridPoint
    loss_nats: float | None = None
    tokens: SpeedUp | None = None
    flops: SpeedUp | None = None
    seconds: SpeedUp | None = None
    lack: str | None = None


def tokens_reaching(tokens_D: Floats, losses_BD: Floats, targets_B: Floats) -> Floats:
    """Tokens at which the baseline has each target loss: ln D over ln L, straight between neighbouring lengths.

    `tokens_D` rise. Beyond the lengths the nearest piece goes on; +inf where longer training is no better there.
    """
    x_D, y_BD = np.log(tokens_D), np.log(losses_BD)
    return np.array([_reaching(x_D, y_D, t) for y_D, t in zip(y_BD, np.log(targets_B), strict=True)])


def _reaching(x_D: Floats, y_D: Floats, target: float) -> float:
    pieces = [i for i in range(len(x_D) - 1) if y_D[i] >= target >= y_D[i + 1]]
    i = pieces[0] if pieces else len(x_D) - 2 if target < y_D.min() else 0
    fall = y_D[i] - y_D[i + 1]
    if fall <= 0:
        return math.inf
    x = x_D[i] + (y_D[i] - target) / fall * (x_D[i + 1] - x_D[i])
    return math.exp(x) if x < 700 else math.inf


def lengths(selection: Selection) -> list[GridPoint]:
    """The baseline at its best point of each length with a complete decay, the shortest first."""
    base = selection.reference
    alike = (p for ps in selection.points.values() for p in ps if other_length(p, base) and decayed(p))
    return [lowest(selection, group) for _, group in sorted(by_tokens(alike).items())]


def savings(source: Source, selection: Selection, sigma_nats: float | None = None) -> list[Saving]:
    """Every arm that is not the baseline in another length, in the order of the sweep."""
    base, found = selection.reference, lengths(selection)
    arms = [points for points in selection.points.values() if not all(other_length(p, base) for p in points)]
    return [_saving(source, selection, found, points, sigma_nats) for points in arms]


def decayed(point: GridPoint) -> bool:
    """Whether the learning rate has reached its end where the loss is read."""
    trace = point.traces[0]
    spec = trace.member.run.spec
    ends = spec.get("optim", {}).get("decay_steps") or trace.member.run.steps_planned
    return bool(ends <= trace.report_step)


def undecayed(selection: Selection, point: GridPoint) -> bool:
    """Whether arms are compared before the point's own end, because another one is shorter."""
    step = selection.at.step
    return step is not None and not selection.preview and step < min(t.report_step for t in point.traces)


def tokens_of(point: GridPoint) -> int | None:
    """Tokens that a seed of the point has trained on where its loss is read; None where the batch is not known."""
    trace = point.traces[0]
    batch = trace.member.run.spec.get("train", {}).get("batch_tokens")
    return trace.report_step * int(batch) if batch else None


def end_losses(selection: Selection, point: GridPoint, split: str) -> dict[int, float]:
    """Loss of each counted seed at the end of its own training, nats a token; +inf where diverged."""
    read = ((t.seed, t.loss_at(split, t.report_step)) for t in selection.counted(point))
    return {seed: loss for seed, loss in read if loss is not None}


def _saving(
    source: Source,
    selection: Selection,
    base: Sequence[GridPoint],
    points: Sequence[GridPoint],
    sigma_nats: float | None,
) -> Saving:
    groups = sorted(by_tokens(p for p in points if decayed(p)).items())
    arm = lowest(selection, groups[-1][1]) if groups else points[0]
    try:
        if not groups:
            raise NlqError("its learning rate has not decayed, or its tokens are not known")
        if len(base) < 2:
            raise NlqError(
                f"{len(base)} baseline with a complete decay: train it at three lengths that bracket the loss; "
                "reading along one run is biased"
            )
        return _worth(source, selection, base, arm, sigma_nats)
    except NlqError as error:
        return Saving(arm, lack=error.message)


def _worth(
    source: Source, selection: Selection, base: Sequence[GridPoint], arm: GridPoint, sigma_nats: float | None
) -> Saving:
    every, split = [*base, arm], selection.at.show_split
    losses = [end_losses(selection, p, split) for p in every]
    seeds = sorted(set.intersection(*(set(found) for found in losses)))
    table_AS = np.array([[found[seed] for seed in seeds] for found in losses])
    if not seeds or not np.isfinite(table_AS).all():
        raise NlqError("no seed in common with the baseline's lengths, or a diverged one")
    kept = block(source, [(p, p.traces[0].report_step) for p in every], seeds, split) or whole(table_AS)
    tokens_D, own = np.array([tokens_of(p) or 0 for p in base], dtype=float), float(tokens_of(arm) or 1)
    means_A = table_AS.mean(1)
    inside = bool(means_A[:-1].min() <= means_A[-1] <= means_A[:-1].max())
    sigma = sigma_for(selection, sigma_nats, source.noises()).alone if len(seeds) == 1 else None
    ms_S = _ms_per_token(source, base, arm, seeds)
    draws_BA, speed_B = _draws(kept, ms_S, sigma)
    ratio = float(tokens_reaching(tokens_D, means_A[None, :-1], means_A[-1:])[0]) / own
    ratios_B = tokens_reaching(tokens_D, draws_BA[:, :-1], draws_BA[:, -1]) / own
    reach = float(tokens_D.max() if means_A[-1] < means_A[:-1].min() else tokens_D.min()) / own
    unbounded = len(seeds) == 1 and sigma is None

    def worth(price: float | None, price_B: Floats | float) -> SpeedUp | None:
        if price is None:
            return None
        ends = None if unbounded else percentiles(ratios_B * price_B)
        return SpeedUp(ratio * price, ends, len(base), reach * price, inside)

    flops = _flops(base[0], arm)
    speed = None if ms_S is None else float(ms_S[0].mean() / ms_S[1].mean())
    return Saving(arm, float(means_A[-1]), worth(1.0, 1.0), worth(flops, flops or 1.0), worth(speed, speed_B))


def _draws(kept: Block, ms_S: Floats | None, sigma: float | None) -> tuple[Floats, Floats]:
    """Resampled losses (B, A), and the baseline's time a token over the arm's (B), by the same seeds."""
    sums_ASJ, tokens_J = kept
    times_2SJ = (np.ones((2, sums_ASJ.shape[1])) if ms_S is None else ms_S)[:, :, None] * tokens_J
    draws = joint_draws(np.concatenate([sums_ASJ, times_2SJ]), tokens_J)
    losses_BA = draws[:, :-2]
    if sigma is not None:
        losses_BA = losses_BA + np.random.default_rng(0).normal(0, sigma, losses_BA.shape)
    return losses_BA, draws[:, -2] / draws[:, -1]


def _flops(base: GridPoint, arm: GridPoint) -> float | None:
    """FLOPs a token of the baseline over the arm's."""
    ours, theirs = (p.traces[0].member.run.flops_per_token for p in (base, arm))
    return ours / theirs if ours and theirs else None


def _ms_per_token(source: Source, base: Sequence[GridPoint], arm: GridPoint, seeds: Sequence[int]) -> Floats | None:
    """Median time of a step over its tokens, (2, S): the baseline's mean over lengths, and the arm's.

    None where steps were not timed, or not all on the same kind of device with as many threads.
    """
    traces = [{t.seed: t.member.run for t in p.traces} for p in (*base, arm)]
    runs = [of[seed] for of in traces for seed in seeds]
    places = {(run.provenance.device, run.provenance.threads) if run.provenance else None for run in runs}
    medians = source.steps([run.run_id for run in runs]).groupby("run_id").step_ms.median()
    if len(places) > 1 or None in places or any(run.run_id not in medians.index for run in runs):
        return None
    each = [float(medians[run.run_id]) / run.spec["train"]["batch_tokens"] for run in runs]
    table_AS = np.array(each).reshape(len(traces), -1)
    return np.stack([table_AS[:-1].mean(0), table_AS[-1]])


def by_tokens(points: Iterable[GridPoint]) -> dict[int, list[GridPoint]]:
    """Points by the tokens that they have trained on, where that is known."""
    groups: dict[int, list[GridPoint]] = {}
    for point in points:
        if (tokens := tokens_of(point)) is not None:
            groups.setdefault(tokens, []).append(point)
    return groups


def lowest(selection: Selection, points: Sequence[GridPoint]) -> GridPoint:
    """The lowest at its own end on the select split, over the seeds that all of its arm's points have."""

    def mean(point: GridPoint) -> float:
        seeds = tuning_seeds(selection.points[point.arm])
        losses = end_losses(selection, point, selection.at.select_split)
        kept = [loss for seed, loss in losses.items() if seed in seeds]
        return sum(kept) / len(kept) if kept else math.inf

    return min(points, key=mean)


def _times(ratio: float) -> str:
    return "∞" if math.isinf(ratio) else f"{ratio:.2f}"
