"""What each arm's loss is worth in parameters, by the arms that are the baseline in another size (METHOD 4.6)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nlq.core.errors import NlqError
from nlq.stats.alike import other_size
from nlq.stats.calibrated import Sigma, sigma_for
from nlq.stats.documents import Block, block, whole
from nlq.stats.equivalents import (
    FEWEST_SIZES,
    Equivalent,
    Line,
    Measured,
    fitted_line,
    local_fit,
    two_point,
    two_point_line,
)
from nlq.stats.families import joint_draws
from nlq.stats.lengths import lengths, undecayed
from nlq.stats.paired import Floats
from nlq.stats.selection import GridPoint, Selection
from nlq.stats.source import Source

NO_CONTROL = "no control: no arm differs from the baseline in size alone"


class Worth(NamedTuple):
    """An arm's best point with what it is worth, or in `lack` why that cannot be said.

    `at_floor` is the same of losses above an irreducible E that was stated, None where none was.
    """

    point: GridPoint
    loss_nats: float | None
    equivalent: Equivalent | None
    lack: str | None
    at_floor: Equivalent | None = None


def controls(selection: Selection) -> list[GridPoint]:
    """Best points of the baseline, first, and of arms that differ from it in size alone, each size once."""
    found = {params_of(selection.reference): selection.reference}
    for point in selection.best.values():
        if params_of(point) and other_size(point, selection.reference) and not undecayed(selection, point):
            found.setdefault(params_of(point), point)
    return list(found.values())


def control_line(source: Source, selection: Selection, at: Sequence[float]) -> tuple[list[Measured], Line]:
    """Mean losses of the controls over the seeds that all of them have, and the fit through them at these sizes.

    Raises NlqError with fewer than two controls, without a common seed, or where one of those diverged.
    """
    sizes, sigma = controls(selection), sigma_for(selection, None, source.noises())
    if len(sizes) < 2:
        raise NlqError(NO_CONTROL)
    seeds, table_AS = _table(selection, sizes)
    if not seeds or not np.isfinite(table_AS).all():
        raise NlqError("the controls have no seed in common, or one diverged")
    measured = [_measured(row_S, sigma) for row_S in table_AS]
    params = [params_of(p) or 0 for p in sizes]
    if len(sizes) < FEWEST_SIZES:
        return measured, two_point_line(params, measured, at)
    kept = _kept(source, selection, sizes, seeds) or whole(table_AS)
    return measured, fitted_line(params, [m.loss_nats for m in measured], _draws(kept, sigma), at)


def worths(
    source: Source, selection: Selection, sigma_nats: float | None = None, floor_nats: float | None = None
) -> list[Worth]:
    """Every arm that is no control, in the order of the sweep; σ of one run and an irreducible loss E, in nats."""
    sizes, sigma = controls(selection), sigma_for(selection, sigma_nats, source.noises())
    longer = [p.arm for p in lengths(selection)]
    others = [p for p in selection.best.values() if p not in sizes and p.arm not in longer]
    return [_worth(source, selection, sizes, point, sigma, floor_nats) for point in others]


def _worth(
    source: Source,
    selection: Selection,
    sizes: list[GridPoint],
    point: GridPoint,
    sigma: Sigma,
    floor_nats: float | None,
) -> Worth:
    every = [*sizes, point]
    if any(undecayed(selection, p) for p in every):
        return Worth(point, None, None, f"read at step {selection.at.step:,}, before its learning rate has decayed")
    seeds, table_AS = _table(selection, every)
    loss = float(table_AS[-1].mean()) if seeds else None
    if not seeds or not np.isfinite(table_AS).all():
        return Worth(point, None, None, "no seed in common with the controls, or a diverged one")
    kept = _kept(source, selection, every, seeds) or whole(table_AS)
    fits: list[Equivalent | None] = [None, None]
    try:
        for place, floor in enumerate((0.0, floor_nats)):
            fits[place] = None if floor is None else _fit(sizes, table_AS, kept, sigma, floor)
    except NlqError as error:
        return Worth(point, loss, fits[0], error.message)
    return Worth(point, loss, fits[0], None, fits[1])


def _table(selection: Selection, points: Sequence[GridPoint]) -> tuple[list[int], Floats]:
    """Seeds that all points have, and their losses, (A, S) in nats a token."""
    losses = [selection.shown_losses(p) for p in points]
    seeds = sorted(set.intersection(*(set(found) for found in losses)))
    return seeds, np.array([[found[seed] for seed in seeds] for found in losses])


def _kept(source: Source, selection: Selection, points: Sequence[GridPoint], seeds: Sequence[int]) -> Block | None:
    return block(source, [(p, selection.at.step) for p in points], seeds, selection.at.show_split)


def _fit(sizes: list[GridPoint], table_AS: Floats, kept: Block, sigma: Sigma, floor: float) -> Equivalent:
    if len(sizes) < FEWEST_SIZES:
        return _two_point(sizes, table_AS, sigma, floor)
    params, means_A = [params_of(p) or 0 for p in sizes], [float(mean) for mean in table_AS.mean(1)]
    return local_fit(params, means_A[:-1], means_A[-1], _draws(kept, sigma), floor)


def _draws(kept: Block, sigma: Sigma) -> Floats | None:
    """Resampled losses (B, A), nats a token; None where one seed stands alone and no σ is known.

    A σ that was given takes the place of resampling seeds, and one that is known stands in for a single seed's.
    """
    sums_ASJ, tokens_J = kept
    seeds = sums_ASJ.shape[1]
    sd = sigma.given or (sigma.alone if seeds == 1 else None)
    if sd is None:
        return None if seeds == 1 else joint_draws(sums_ASJ, tokens_J)
    draws_BA = joint_draws(sums_ASJ.mean(1, keepdims=True), tokens_J)
    return draws_BA + np.random.default_rng(0).normal(0, sd / math.sqrt(seeds), draws_BA.shape)


def _two_point(sizes: list[GridPoint], table_AS: Floats, sigma: Sigma, floor: float) -> Equivalent:
    if len(sizes) < 2:
        raise NlqError(NO_CONTROL)
    base, control = (params_of(p) or 0 for p in sizes)
    ours, theirs, variant = (_measured(row_S, sigma) for row_S in table_AS)
    return two_point(ours, theirs, variant, control / base, floor)


def _measured(losses_S: Floats, sigma: Sigma) -> Measured:
    """Mean and SE over seeds; one seed alone bounds nothing where no σ is known."""
    n = len(losses_S)
    sd = sigma.beside(float(losses_S.std(ddof=1)) if n > 1 else None) or math.inf
    return Measured(float(losses_S.mean()), sd / math.sqrt(n))


def params_of(point: GridPoint) -> int | None:
    """Non-embedding parameters; None where not known."""
    return point.traces[0].member.run.non_embedding_params
