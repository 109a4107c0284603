"""METHOD 4.3's table of smallest gaps, and 4.4's factors of the winner's curse."""

import numpy as np
import pytest

from nlq.core.errors import NlqError
from nlq.stats.power import best_of, detected, noise_interval, seeds_needed, smallest_gap

SIGMA = 0.0018


@pytest.mark.parametrize(("seeds", "gap"), [(2, 0.0102), (3, 0.0055), (5, 0.0036), (8, 0.0027), (10, 0.0024)])
def test_smallest_gaps_of_method(seeds, gap):
    assert round(smallest_gap(seeds, SIGMA), 4) == gap


@pytest.mark.parametrize("seeds", [2, 3, 5, 8, 10, 40])
def test_seeds_needed_is_the_inverse(seeds):
    gap = smallest_gap(seeds, SIGMA)
    assert seeds_needed(gap * 1.0001, SIGMA) == seeds
    assert detected(gap, seeds, SIGMA) == pytest.approx(0.8)


def test_pairing_saves_seeds_only_where_arms_agree():
    assert smallest_gap(5, SIGMA, correlation=0.8) < smallest_gap(5, SIGMA)
    assert smallest_gap(5, SIGMA, correlation=0.0) > smallest_gap(5, SIGMA)


def test_power_as_simulated():
    rng = np.random.default_rng(1)
    draws = rng.normal(0, SIGMA, (20000, 2, 5))
    base, other = draws[:, 0] + 0.0036, draws[:, 1]
    se = np.sqrt((base.var(1, ddof=1) + other.var(1, ddof=1)) / 5)
    found = np.mean((base.mean(1) - other.mean(1)) / se > 2.306)
    assert found == pytest.approx(detected(0.0036, 5, SIGMA), abs=0.01)


@pytest.mark.parametrize(("k", "c"), [(1, 0), (2, 0.56), (5, 1.16), (10, 1.54), (20, 1.87), (29, 2.03), (41, 2.17)])
def test_winners_curse_of_method(k, c):
    assert round(best_of(k), 2) == c


def test_noise_of_three_seeds_is_hardly_known():
    low, high = noise_interval(0.0018, 2, 0.9)
    assert low == pytest.approx(0.00104, abs=1e-5)
    assert high == pytest.approx(0.00795, abs=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: smallest_gap(1, SIGMA),
        lambda: smallest_gap(5, 0.0),
        lambda: smallest_gap(5, SIGMA, power=0.01),
        lambda: smallest_gap(5, SIGMA, correlation=1.0),
        lambda: seeds_needed(0.0, SIGMA),
        lambda: seeds_needed(1e-9, SIGMA),
    ],
)
def test_questions_without_an_answer(wrong):
    with pytest.raises(NlqError):
        wrong()
