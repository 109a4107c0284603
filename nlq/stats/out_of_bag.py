"""A gain without what choosing among points adds: choose on resampled seeds, read on the others (METHOD 4.4)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nlq.stats.documents import Block, block, whole
from nlq.stats.paired import Counts, Floats
from nlq.stats.printing import plural
from nlq.stats.selection import GridPoint, Selection
from nlq.stats.source import Source

DRAWS = 2000


class Tried(NamedTuple):
    """The points of an arm on the documents that choose and on those that show; P and S are the same in both.

    `apart` says that the two are different documents, so that all that show are out of bag.
    """

    choose: Block
    show: Block
    apart: bool


class Corrected(NamedTuple):
    """δ in nats, mean over the resamples; `seeds` and `documents` are how many were resampled (1: not at all)."""

    delta_nats: float
    seeds: int
    documents: int

    def __str__(self) -> str:
        """What was resampled, in words."""
        parts = [plural(n, what) for n, what in ((self.seeds, "seed"), (self.documents, "document")) if n > 1]
        return f"{DRAWS:,} resamples of {' and '.join(parts)}"


def corrected(source: Source, selection: Selection, point: GridPoint) -> Corrected | None:
    """δ of an arm's best point and the baseline's, both chosen anew in every resample; None where nothing can be.

    Points with a diverged seed are never chosen, as they are not in the table.
    """
    arms = {arm: _choosable(selection, arm) for arm in (selection.sweep.baseline, point.arm)}
    if not all(arms.values()):
        return None
    seeds = frozenset.intersection(*(own for places in arms.values() for own in places.values()))
    if not seeds:
        return None
    chosen = ([selection.points[arm][place] for place in places] for arm, places in arms.items())
    base, other = (_tried(source, selection, points, sorted(seeds)) for points in chosen)
    return out_of_bag(base, other)


def out_of_bag(base: Tried, arm: Tried, draws: int = DRAWS) -> Corrected | None:
    """Mean of δ over draws of seeds and documents: each arm's lowest point in the bag, read out of it.

    Both arms take the same draws. With one seed documents alone are resampled; None where there is one of each, or
    where the arms' documents differ.
    """
    _, seeds, documents = arm.choose.sums_PSJ.shape
    if seeds * documents == 1 or base.choose.sums_PSJ.shape[1:] != (seeds, documents):
        return None
    rng = np.random.default_rng(0)
    seeds_BS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
    documents_BJ = rng.multinomial(documents, np.full(documents, 1 / documents), size=draws)
    left_BS = np.ones_like(seeds_BS) if seeds == 1 else (seeds_BS == 0).astype(np.int64)
    usable_B = left_BS.any(axis=1)
    if not arm.apart and documents > 1:
        usable_B &= (documents_BJ == 0).any(axis=1)
    if not usable_B.any():
        return None
    bag = seeds_BS[usable_B], documents_BJ[usable_B], left_BS[usable_B]
    losses = [_chosen_outside(tried, *bag) for tried in (base, arm)]
    return Corrected(float((losses[0] - losses[1]).mean()), seeds, documents)


def _chosen_outside(tried: Tried, seeds_BS: Counts, documents_BJ: Counts, left_BS: Counts) -> Floats:
    """The loss out of bag of the point that is lowest in the bag, for each draw."""
    chosen_B = _means(tried.choose, seeds_BS, documents_BJ).argmin(axis=1)
    shown = tried.show.sums_PSJ.shape[2]
    outside_BK = (
        np.ones((len(seeds_BS), shown), np.int64) if tried.apart or shown == 1 else (documents_BJ == 0).astype(np.int64)
    )
    return np.asarray(_means(tried.show, left_BS, outside_BK)[np.arange(len(chosen_B)), chosen_B])


def _means(found: Block, seeds_BS: Counts, documents_BJ: Counts) -> Floats:
    """Weighted mean losses (B, P), nats a token."""
    sums_PSB = found.sums_PSJ @ documents_BJ.T.astype(float)
    mean_BP = np.einsum("psb,bs->bp", sums_PSB, seeds_BS) / seeds_BS.sum(axis=1)[:, None]
    return np.asarray(mean_BP / (documents_BJ @ found.tokens_J)[:, None])


def _choosable(selection: Selection, arm: str) -> dict[int, frozenset[int]]:
    """Tuning seeds with a result, by place in the arm, of points of which no seed diverged."""
    found = {}
    for place, point in enumerate(selection.points[arm]):
        chosen, shown = selection.tuning_losses(point), selection.losses(point)
        if chosen and all(map(math.isfinite, (*chosen.values(), *shown.values()))):
            found[place] = frozenset(chosen.keys() & shown.keys())
    return found


def _tried(source: Source, selection: Selection, points: Sequence[GridPoint], seeds: Sequence[int]) -> Tried:
    chosen, shown = selection.at.select_split, selection.at.show_split
    places = [(p, selection.at.step) for p in points]
    blocks = [block(source, places, seeds, split) for split in (chosen, shown)]
    if blocks[0] is not None and blocks[1] is not None:
        return Tried(blocks[0], blocks[1], chosen != shown)
    losses = [[selection.losses(p, split) for p in points] for split in (chosen, shown)]
    tables = [np.array([[found[seed] for seed in seeds] for found in one]) for one in losses]
    return Tried(whole(tables[0]), whole(tables[1]), apart=True)
