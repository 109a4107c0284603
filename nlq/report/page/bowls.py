"""Loss by learning rate, a bowl where it was tuned: one line for each arm and setting of its other axes."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from nlq.stats.printing import settings
from nlq.stats.selection import GridPoint, Selection
from nlq.stats.tuning import RATE, optimum, tuning_loss


class Dip(NamedTuple):
    """One point of the grid: mean loss over its tuning seeds on the split that selects, None where one diverged."""

    lr_max: float
    loss_nats: float | None
    said: str
    best: bool


class Bowl(NamedTuple):
    """One arm along its learning rates, other settings held; `lowest` is the parabola's (rate, nats a token)."""

    arm: str
    label: str
    held: str
    dips: tuple[Dip, ...]
    lowest: tuple[float, float] | None


def bowls(selection: Selection) -> tuple[Bowl, ...]:
    """Every arm whose points name a learning rate and have a result."""
    return tuple(_bowls(selection))


def _bowls(selection: Selection) -> Iterator[Bowl]:
    for arm, points in selection.points.items():
        groups: dict[str, list[GridPoint]] = {}
        for point in points:
            if RATE in point.settings and tuning_loss(selection, point) is not None:
                groups.setdefault(_held(point), []).append(point)
        for held, group in groups.items():
            yield _bowl(selection, arm, held, group)


def _held(point: GridPoint) -> str:
    return settings({name: value for name, value in point.settings.items() if name != RATE})


def _bowl(selection: Selection, arm: str, held: str, group: list[GridPoint]) -> Bowl:
    dips = sorted((_dip(selection, point) for point in group), key=lambda dip: dip.lr_max)
    found = optimum(selection, arm).bowl if any(dip.best for dip in dips) else None
    lowest = (found.lr_max, found.loss_nats) if found else None
    return Bowl(arm, group[0].label, held, tuple(dips), lowest)


def _dip(selection: Selection, point: GridPoint) -> Dip:
    loss = tuning_loss(selection, point)
    seeds = selection.tuning_losses(point)
    each = ", ".join(f"seed {seed}: {'diverged' if math.isinf(one) else repr(one)}" for seed, one in seeds.items())
    finite = loss if loss is not None and math.isfinite(loss) else None
    return Dip(float(point.settings[RATE]), finite, each, point is selection.best[point.arm])
