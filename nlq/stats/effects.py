"""How large a difference in loss is: ΔLL and ΔPPX as fractions (METHOD 4.5; Table 1 of arXiv 2603.13381)."""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Interval(NamedTuple):
    """Two ends, `low` ≤ `high`, in the unit of the quantity that it is about."""

    low: float
    high: float


class Agreement(StrEnum):
    """How a printed number stands to the one computed from printed inputs."""

    MATCH = "match"
    ROUNDING = "rounding"
    DIFFERS = "differs"


def delta_ll(loss_nats: float, baseline_nats: float) -> float:
    """Relative improvement of the loss, (L_base - L) / L_base: a fraction, positive where the loss is lower."""
    return (baseline_nats - loss_nats) / baseline_nats


def delta_ppx(loss_nats: float, baseline_nats: float) -> float:
    """Relative improvement of the perplexity, 1 - exp(L - L_base): a fraction, positive where the loss is lower."""
    return -math.expm1(loss_nats - baseline_nats)


def reachable(
    effect: Callable[[float, float], float], loss_nats: float, baseline_nats: float, decimals: int
) -> Interval:
    """Values that `effect` can have when both losses are known only as printed with `decimals` decimals.

    Interval arithmetic: every effect here falls with the loss and rises with the baseline's.
    """
    half = 0.5 * 10.0**-decimals
    worst = effect(loss_nats + half, baseline_nats - half)
    return Interval(worst, effect(loss_nats - half, baseline_nats + half))


def agreement(printed: float, computed: float, reach: Interval, decimals: int) -> Agreement:
    """Whether `printed` (with `decimals` decimals) is `computed` rounded, or a rounding of another value in `reach`."""
    if f"{printed:.{decimals}f}" == f"{computed:.{decimals}f}":
        return Agreement.MATCH
    half = 0.5 * 10.0**-decimals
    inside = reach.low <= printed + half and reach.high >= printed - half
    return Agreement.ROUNDING if inside else Agreement.DIFFERS
