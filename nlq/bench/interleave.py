"""Contenders in turn, round after round, so that whatever else the machine does meets all of them alike."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

LEAST_ROUNDS = 3
"""Rounds where time decides: fewer have no spread."""

Go = Callable[[int], float]
"""Takes that many steps and returns the seconds that they took."""


class Spread(NamedTuple):
    """The median of a figure over the rounds, and the two quartiles around it."""

    median: float
    low: float
    high: float


class Turns(NamedTuple):
    """How long to measure: `seconds` a contender and round; as many `rounds`, or else as many as `limit_s` allows."""

    seconds: float = 1.0
    rounds: int | None = None
    limit_s: float = 20.0


def interleave(contenders: Mapping[str, Go], turns: Turns) -> dict[str, list[float]]:
    """Seconds a step of every contender, one number a round. The first of a round is another one each time.

    A round gives each of them whole steps for about `seconds`, by the time of a first step. Where one step is a whole
    turn for all, those first steps are the first round.
    """
    began = time.perf_counter()
    first = {name: go(1) for name, go in contenders.items()}
    counts = {name: max(1, round(turns.seconds / max(step_s, 1e-9))) for name, step_s in first.items()}
    done = int(max(counts.values()) == 1)
    taken: dict[str, list[float]] = {name: [first[name]] * done for name in contenders}
    while _goes_on(turns, done, time.perf_counter() - began):
        for name in _rotated(list(contenders), done):
            taken[name].append(contenders[name](counts[name]) / counts[name])
        done += 1
    return taken


def spread(figures: Sequence[float]) -> Spread:
    """Over rounds."""
    low, median, high = np.quantile(figures, (0.25, 0.5, 0.75)).tolist()
    return Spread(median, low, high)


def ratios(over: Sequence[float], under: Sequence[float]) -> Spread:
    """How many times as much `over` took as `under`, round by round."""
    return spread([a / b for a, b in zip(over, under, strict=True)])


def _goes_on(turns: Turns, done: int, elapsed_s: float) -> bool:
    if turns.rounds is not None:
        return done < turns.rounds
    after_one_more = elapsed_s * (done + 1) / max(1, done)
    return done < LEAST_ROUNDS or after_one_more <= turns.limit_s


def _rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]
