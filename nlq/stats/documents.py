"""Losses by document of several points and seeds, as one block."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nlq.stats.paired import Counts, Floats, clusters, same_documents
from nlq.stats.selection import GridPoint
from nlq.stats.source import Source


class Block(NamedTuple):
    """Summed losses (nats) of P points and S seeds on J documents with their tokens; J is 1 where none are kept."""

    sums_PSJ: Floats  # noqa: N815
    tokens_J: Counts  # noqa: N815


def block(
    source: Source, places: Sequence[tuple[GridPoint, int | None]], seeds: Sequence[int], split: str
) -> Block | None:
    """Evaluations of points, each at a step; None where one is not kept or is of other documents."""
    runs = [({t.seed: t.member.run.run_id for t in point.traces}, step) for point, step in places]
    kept = [None if step is None else source.windows(of[seed], step, split) for of, step in runs for seed in seeds]
    found = [clusters(windows) for windows in kept if windows is not None]
    if not found or len(found) < len(kept) or not all(same_documents(found[0], one) for one in found):
        return None
    sums_PSJ = np.stack([one.sums_J for one in found]).reshape(len(places), len(seeds), -1)
    return Block(sums_PSJ, found[0].tokens_J)


def whole(losses_PS: Floats) -> Block:
    """Losses (nats a token) whose documents are not kept, as a block of one document."""
    return Block(losses_PS[:, :, None], np.ones(1, dtype=np.int64))
