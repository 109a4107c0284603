"""One point against the baseline's best point, paired by seed."""

import math
from dataclasses import dataclass

from nlq.stats.effects import Interval
from nlq.stats.seeds import Mean, ll_interval, paired_difference, ppx_interval, summarise
from nlq.stats.selection import GridPoint, Hashes, Selection

UNKNOWN = "data order and evaluation windows are not known"
"""Of runs that were made elsewhere."""


@dataclass(frozen=True)
class Comparison:
    """δ = L_base - L in nats over the common `seeds`, and what it is as fractions of loss and of perplexity.

    `delta` is None where there is nothing to compare (no common seed, a diverged seed, no evaluation); `matched`
    is None where no seed is common or a run was made elsewhere, else whether on both sides every common seed read the
    same batches and was evaluated on the same windows.
    """

    seeds: tuple[int, ...]
    matched: bool | None
    delta: Mean | None = None
    baseline_nats: float | None = None

    @property
    def delta_ll(self) -> float | None:
        """δ / L_base, both averaged over the common seeds."""
        return self.delta.mean / self.baseline_nats if self.delta and self.baseline_nats else None

    @property
    def delta_ll_interval(self) -> Interval | None:
        """95 % interval of `delta_ll`."""
        wide = self.delta.interval if self.delta else None
        return ll_interval(wide, self.baseline_nats) if wide and self.baseline_nats else None

    @property
    def delta_ppx(self) -> float | None:
        """1 - exp(-δ)."""
        return -math.expm1(-self.delta.mean) if self.delta else None

    @property
    def delta_ppx_interval(self) -> Interval | None:
        """95 % interval of `delta_ppx`."""
        wide = self.delta.interval if self.delta else None
        return ppx_interval(wide) if wide else None


def compare(selection: Selection, point: GridPoint) -> Comparison:
    """`point` against the baseline's best point at the compared step, on the shown split."""
    other = selection.shown_losses(point)
    base = selection.shown_losses(selection.reference)
    if not base.keys() & other.keys():  # a point that was not chosen has no fresh seed: it meets the tuning seeds
        base = selection.losses(selection.reference)
    seeds = tuple(sorted(base.keys() & other.keys()))
    matched = _matched(selection, point, seeds) if seeds else None
    if not all(math.isfinite(loss) for loss in [*base.values(), *other.values()]):
        return Comparison(seeds, matched)
    mean = summarise(base[seed] for seed in seeds)
    return Comparison(seeds, matched, paired_difference(base, other), mean.mean if mean else None)


def made_elsewhere(selection: Selection, point: GridPoint) -> bool:
    """Whether an imported run is on one side: seeds then say nothing about the order of the data."""
    return point.imported or selection.reference.imported


def _matched(selection: Selection, point: GridPoint, seeds: tuple[int, ...]) -> bool | None:
    """Whether training batches and evaluation windows are known and equal; a diverged run's last ones count."""
    if made_elsewhere(selection, point):
        return None
    ours, theirs = _hashes(selection, point), _hashes(selection, selection.reference)
    return all(_same(ours[seed], theirs[seed]) for seed in seeds)


def _same(ours: dict[int, Hashes], theirs: dict[int, Hashes]) -> bool:
    common = ours.keys() & theirs.keys()
    last = max(common, default=None)
    known = last is not None and (last == 0 or bool(ours[last][0]))  # nothing has been read before step 0
    return known and last is not None and ours[last] == theirs[last]


def _hashes(selection: Selection, point: GridPoint) -> dict[int, dict[int, Hashes]]:
    """Hashes of each seed by step, up to the compared step."""
    split, step = selection.at.show_split, selection.at.step
    return {
        t.seed: {s: h for s, h in t.hashes.get(split, {}).items() if step is None or s <= step} for t in point.traces
    }
