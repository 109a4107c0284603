"""Means over seeds, paired differences and their intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from nlq.stats.effects import Interval
from nlq.stats.seeds import ll_interval, paired_difference, ppx_interval, summarise


def test_summary_of_three_seeds():
    mean = summarise([2.0, 3.0, 4.0])
    assert (mean.mean, mean.sd, mean.n) == (3.0, 1.0, 3)
    # t(0.975, 2) = 4.3027; 4.3027 / √3 = 2.4841
    assert mean.interval == pytest.approx((3 - 2.48414, 3 + 2.48414), abs=1e-4)


def test_summary_of_one_and_of_none():
    assert summarise([2.5]) == (2.5, None, 1, None)
    assert summarise([]) is None


def test_a_diverged_seed_makes_the_mean_infinite():
    assert summarise([2.0, math.inf]) == (math.inf, None, 2, None)
    assert summarise([2.0, math.nan]).mean == math.inf


def test_pairing_removes_what_seeds_share():
    base, other = {0: 3.0, 1: 3.5, 2: 2.8}, {2: 2.7, 0: 2.9, 1: 3.4, 7: 1.0}
    delta = paired_difference(base, other)
    assert delta.mean == pytest.approx(0.1)
    assert delta.sd == pytest.approx(0, abs=1e-12)
    assert delta.n == 3


def test_no_common_seed_or_a_diverged_one_gives_no_difference():
    assert paired_difference({0: 3.0}, {1: 2.9}) is None
    assert paired_difference({0: 3.0, 1: 3.0}, {0: 2.9, 1: math.inf}) is None


def test_intervals_of_effects_are_the_ends_transformed():
    """check_arithmetic.py N.ppx: δ = 0.0705 ± 1.96 · 0.0025."""
    ends = Interval(0.0705 - 1.96 * 0.0025, 0.0705 + 1.96 * 0.0025)
    assert ppx_interval(ends) == pytest.approx((0.06350, 0.07264), abs=2e-5)
    assert ll_interval(ends, 2.9441) == pytest.approx((ends.low / 2.9441, ends.high / 2.9441))


def test_interval_covers_as_often_as_it_says():
    """check_arithmetic.py N.cov5: five paired seeds of sd 0.0018·√2, 95 % intervals."""
    rng = np.random.default_rng(3)
    draws = 0.01 + rng.normal(0, 0.0018 * math.sqrt(2), (1500, 5))
    inside = sum(i.low < 0.01 < i.high for i in (summarise(d).interval for d in draws))
    assert stats.binomtest(inside, 1500, 0.95).pvalue > 0.001
