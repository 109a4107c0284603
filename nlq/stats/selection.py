"""Which point stands for each arm, and at which step arms are compared (METHOD 4.4).

Selection reads the `select` half of the validation set, the tables show the `confirm` half; runs that were
evaluated on one set only ("val") use that for both. A diverged run has loss +inf and is never left out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from nlq.core.errors import NlqError
from nlq.core.run import FINISHED, EvalPoint, Member, State, SweepRecord
from nlq.stats.source import Source

Hashes = tuple[str | None, str | None]
"""Of the training batches up to an evaluation, and of the windows that it was made on (None where not known)."""


@dataclass(frozen=True)
class Trace:
    """One run with its evaluations: loss (nats a token, +inf where not finite) and hashes, by split and step."""

    member: Member
    losses: Mapping[str, Mapping[int, float]]
    hashes: Mapping[str, Mapping[int, Hashes]]

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.member.run.seed

    @property
    def diverged(self) -> bool:
        """Whether the run's loss is gone."""
        return self.member.run.state == State.DIVERGED

    @property
    def finished(self) -> bool:
        """Whether the run needs no further training."""
        return self.member.run.state in FINISHED

    @property
    def report_step(self) -> int:
        """The step that the run's spec puts into tables; its planned last step where the spec says nothing."""
        step = self.member.run.spec.get("train", {}).get("report_step")
        return self.member.run.steps_planned if step is None else int(step)

    def loss_at(self, split: str, step: int | None) -> float | None:
        """Nats a token; +inf for a diverged run, None where nothing was evaluated."""
        if self.diverged:
            return math.inf
        return None if step is None else self.losses.get(split, {}).get(step)


@dataclass(frozen=True)
class GridPoint:
    """An arm at one point of its grid, with its seeds in the order of the sweep."""

    arm: str
    label: str
    settings: Mapping[str, Any]
    traces: tuple[Trace, ...]

    @property
    def finished(self) -> bool:
        """Whether every seed is finished."""
        return all(trace.finished for trace in self.traces)

    @property
    def imported(self) -> bool:
        """Whether the numbers of a seed were made elsewhere."""
        return any(trace.member.run.imported for trace in self.traces)

    def settled(self, seeds: frozenset[int]) -> bool:
        """Whether every one of these seeds has ended, well or not."""
        ended = (*FINISHED, State.FAILED, State.CANCELLED)
        return all(trace.member.run.state in ended for trace in self.traces if trace.seed in seeds)

    @property
    def diverged(self) -> tuple[Trace, ...]:
        """The seeds that diverged."""
        return tuple(trace for trace in self.traces if trace.diverged)

    @property
    def diverged_step(self) -> int | None:
        """The first step at which a seed diverged; None where none did or the step is not known."""
        steps = [t.member.run.diverged_step for t in self.diverged if t.member.run.diverged_step is not None]
        return min(steps, default=None)


class Compared(NamedTuple):
    """Where arms are compared: the step (None when nothing is evaluated) and the splits that choose and show."""

    step: int | None
    select_split: str
    show_split: str


@dataclass(frozen=True)
class Selection:
    """A sweep with its points, the point that stands for each arm, and where they are compared.

    `preview` is true when no run of the sweep is finished: unfinished runs are then read at the last step they share.
    """

    sweep: SweepRecord
    points: Mapping[str, tuple[GridPoint, ...]]
    best: Mapping[str, GridPoint]
    at: Compared
    preview: bool

    @property
    def reference(self) -> GridPoint:
        """The baseline arm's best point."""
        return self.best[self.sweep.baseline]

    @property
    def report_step(self) -> int:
        """The latest step that any run's spec puts into tables."""
        return max(t.report_step for t in self.traces())

    def traces(self) -> list[Trace]:
        """All runs, in the order of the sweep's arms and points."""
        return [trace for points in self.points.values() for point in points for trace in point.traces]

    def counted(self, point: GridPoint) -> tuple[Trace, ...]:
        """The seeds whose loss counts: finished ones, or all in a preview."""
        return tuple(t for t in point.traces if self.preview or t.finished)

    def losses(self, point: GridPoint, split: str | None = None) -> dict[int, float]:
        """Loss of each counted seed at the compared step (nats a token, +inf where diverged), on the shown split."""
        read = ((t.seed, t.loss_at(split or self.at.show_split, self.at.step)) for t in self.counted(point))
        return {seed: loss for seed, loss in read if loss is not None}

    def tuning_losses(self, point: GridPoint) -> dict[int, float]:
        """Losses that the choice among an arm's points rests on: of its tuning seeds, on the select split."""
        seeds = tuning_seeds(self.points[point.arm])
        return {seed: loss for seed, loss in self.losses(point, self.at.select_split).items() if seed in seeds}

    def fresh_seeds(self, point: GridPoint) -> tuple[int, ...]:
        """Seeds of the point that did not choose it: those of no other point of its arm, or all without another."""
        others = (p for p in self.points[point.arm] if p is not point)
        used = {trace.seed for other in others for trace in other.traces}
        return tuple(seed for seed in self.losses(point) if seed not in used)

    def shown_losses(self, point: GridPoint) -> dict[int, float]:
        """Loss of each seed that tables show of a point (nats a token, +inf where diverged).

        Of an arm's best point these are the seeds that did not choose it, as soon as every arm has some (METHOD 4.4).
        """
        confirmed = self._confirmed.get(point.arm) if point is self.best[point.arm] else None
        return {seed: x for seed, x in self.losses(point).items() if confirmed is None or seed in confirmed}

    def shown_traces(self, point: GridPoint) -> tuple[Trace, ...]:
        """The point's runs but those whose losses tables leave out, as `shown_losses` says."""
        left_out = self.losses(point).keys() - self.shown_losses(point).keys()
        return tuple(trace for trace in point.traces if trace.seed not in left_out)

    @cached_property
    def _confirmed(self) -> Mapping[str, frozenset[int]]:
        """Fresh seeds of each arm's best point; nothing while an arm has none. Asked for at every point of a table."""
        fresh = {arm: frozenset(self.fresh_seeds(point)) for arm, point in self.best.items()}
        return fresh if all(fresh.values()) else {}


def tuning_seeds(points: Sequence[GridPoint]) -> frozenset[int]:
    """Seeds that every point of an arm has; all of them where they share none.

    Seeds added to the chosen point alone confirm it: were they counted, they would choose with the others.
    """
    seeds = [frozenset(trace.seed for trace in point.traces) for point in points]
    return frozenset.intersection(*seeds) or frozenset.union(*seeds)


def load(source: Source, sweep: str | None) -> Selection:
    """Read a sweep (the latest when None) and choose each arm's point. Raises NlqError as `select` does."""
    record = source.sweep(sweep)
    return select(record, source.evals([m.run.run_id for m in record.members]))


def select(sweep: SweepRecord, evals: Mapping[str, list[EvalPoint]]) -> Selection:
    """Choose the point of each arm: lowest mean loss over its tuning seeds on the select split at the compared step.

    Points whose seeds have all ended compete, if the arm has one with a result; otherwise those with a finished seed.
    The compared step is the largest that all competing runs evaluated, at most their report step.
    Raises NlqError when the sweep has no runs or lacks its baseline arm.
    """
    points = _points(sweep, evals)
    preview = not any(t.finished for arm in points.values() for p in arm for t in p.traces)
    entrants = {arm: _competing(ps, preview) for arm, ps in points.items()}
    at = _compared([t for ps in entrants.values() for p in ps for t in p.traces if preview or t.finished])
    draft = Selection(sweep, points, {}, at, preview)
    best = {arm: min(ps, key=lambda p: _rank(draft, p)) for arm, ps in entrants.items()}
    return Selection(sweep, points, best, at, preview)


def _points(sweep: SweepRecord, evals: Mapping[str, list[EvalPoint]]) -> dict[str, tuple[GridPoint, ...]]:
    arms = sweep.arms()
    if not arms:
        raise NlqError(f'sweep "{sweep.name}" has no runs')
    if sweep.baseline not in arms:
        raise NlqError(f'sweep "{sweep.name}" has no run of its baseline arm "{sweep.baseline}"')
    return {arm: _points_of(members, evals) for arm, members in arms.items()}


def _points_of(members: Iterable[Member], evals: Mapping[str, list[EvalPoint]]) -> tuple[GridPoint, ...]:
    groups: dict[str, list[Trace]] = {}
    for member in members:
        trace = _trace(member, evals.get(member.run.run_id, []))
        groups.setdefault(repr(sorted(member.point.items())), []).append(trace)
    return tuple(
        GridPoint(ts[0].member.arm, ts[0].member.label, ts[0].member.point, tuple(ts)) for ts in groups.values()
    )


def _trace(member: Member, rows: Iterable[EvalPoint]) -> Trace:
    losses: dict[str, dict[int, float]] = {}
    hashes: dict[str, dict[int, Hashes]] = {}
    for row in rows:
        known = row.loss_nats is not None and math.isfinite(row.loss_nats)
        losses.setdefault(row.split, {})[row.step] = row.loss_nats if known else math.inf
        hashes.setdefault(row.split, {})[row.step] = (row.data_hash, row.windows_hash)
    return Trace(member, losses, hashes)


def _competing(points: tuple[GridPoint, ...], preview: bool) -> tuple[GridPoint, ...]:
    """Points that no training can add to, if the arm has one with a result: failed seeds are missing, not pending."""
    seeds = tuning_seeds(points)
    finished = tuple(p for p in points if p.settled(seeds) and any(t.finished for t in p.traces))
    some = tuple(p for p in points if any(t.finished or (preview and t.losses) for t in p.traces))
    return finished or some or points


def _compared(traces: list[Trace]) -> Compared:
    splits = {split for trace in traces for split in trace.losses}
    chosen, shown = ("select", "confirm") if "confirm" in splits else ("val", "val")
    steps = [t.losses[chosen].keys() & t.losses[shown].keys() for t in traces if _readable(t, chosen, shown)]
    limit = min((t.report_step for t in traces if _readable(t, chosen, shown)), default=0)
    common = set.intersection(*map(set, steps)) if steps else set()
    trained = (s for s in common if s <= limit and (s > 0 or limit == 0))  # step 0 compares untrained weights
    return Compared(max(trained, default=None), chosen, shown)


def _readable(trace: Trace, *splits: str) -> bool:
    """A diverged run does not shorten the comparison, and neither does one without evaluations."""
    return not trace.diverged and all(split in trace.losses for split in splits)


def _rank(draft: Selection, point: GridPoint) -> tuple[float, float, float]:
    """Lowest mean first; without one, fewest diverged seeds and then the latest to diverge."""
    losses = draft.tuning_losses(point)
    mean = sum(losses.values()) / len(losses) if losses else math.inf
    return mean, len(point.diverged), -(point.diverged_step or 0)
