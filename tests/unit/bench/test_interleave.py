"""Turns, rounds, ratios and their spread."""

from collections.abc import Callable

import pytest

from nlq.bench.interleave import LEAST_ROUNDS, Spread, Turns, interleave, ratios, spread


class Fake:
    """A contender with a known pace; notes the turns that it had."""

    def __init__(self, name: str, step_s: float, log: list[tuple[str, int]]) -> None:
        self.name, self.step_s, self.log = name, step_s, log

    def __call__(self, count: int) -> float:
        self.log.append((self.name, count))
        return count * self.step_s


def fakes(**step_s: float) -> tuple[dict[str, Callable[[int], float]], list[tuple[str, int]]]:
    log: list[tuple[str, int]] = []
    return {name: Fake(name, s, log) for name, s in step_s.items()}, log


def test_a_turn_is_whole_steps_for_about_as_long() -> None:
    contenders, log = fakes(quick=0.01, slow=0.3, slower=5.0)
    taken = interleave(contenders, Turns(seconds=1.0, rounds=2))
    assert log[:3] == [("quick", 1), ("slow", 1), ("slower", 1)]
    assert sorted(log[3:6]) == [("quick", 100), ("slow", 3), ("slower", 1)]
    assert taken["slow"] == pytest.approx([0.3, 0.3])


def test_everybody_begins_a_round_once() -> None:
    contenders, log = fakes(a=0.1, b=0.1, c=0.1)
    interleave(contenders, Turns(seconds=1.0, rounds=3))
    assert [name for name, _ in log[3:]] == list("abcbcacab")


def test_long_first_steps_are_a_round() -> None:
    contenders, log = fakes(a=2.0, b=3.0)
    taken = interleave(contenders, Turns(seconds=1.0, rounds=3))
    assert len(log) == 6
    assert taken == {"a": [2.0] * 3, "b": [3.0] * 3}


def test_without_rounds_time_decides_and_three_are_the_least() -> None:
    contenders, _ = fakes(a=0.5)
    assert len(interleave(contenders, Turns(seconds=1.0, limit_s=0.0))["a"]) == LEAST_ROUNDS
    assert len(interleave(contenders, Turns(seconds=1.0, limit_s=0.05))["a"]) > LEAST_ROUNDS


def test_spread_is_the_median_and_the_quartiles() -> None:
    assert spread([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(3.0, 2.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_ratios_are_taken_round_by_round() -> None:
    """A machine that is three times as slow in one round leaves the ratio alone."""
    assert ratios([2.0, 6.0, 2.0], [1.0, 3.0, 1.0]) == Spread(2.0, 2.0, 2.0)
