"""The points of a scaling surface: the baseline in every size and length that a sweep has trained (METHOD 4.6)."""

import math
from typing import NamedTuple

from nlq.stats.alike import other_size_or_length
from nlq.stats.lengths import by_tokens, decayed, end_losses, lowest
from nlq.stats.selection import GridPoint, Selection


class Scaled(NamedTuple):
    """A model of `params` non-embedding parameters after `tokens` tokens: its mean loss over seeds, nats a token."""

    params: float
    tokens: float
    loss_nats: float


def scaled(selection: Selection) -> list[Scaled]:
    """One for each size and length with a complete decay, at its best point; those that diverged are left to notes."""
    base = selection.reference
    alike = [p for ps in selection.points.values() for p in ps if other_size_or_length(p, base) and decayed(p)]
    sizes: dict[int, list[GridPoint]] = {}
    for point in alike:
        if params := point.traces[0].member.run.non_embedding_params:
            sizes.setdefault(params, []).append(point)
    found = (
        (params, tokens, _mean(selection, lowest(selection, group)))
        for params, points in sorted(sizes.items())
        for tokens, group in sorted(by_tokens(points).items())
    )
    return [Scaled(params, tokens, loss) for params, tokens, loss in found if math.isfinite(loss)]


def _mean(selection: Selection, point: GridPoint) -> float:
    losses = end_losses(selection, point, selection.at.show_split)
    return sum(losses.values()) / len(losses) if losses else math.inf
