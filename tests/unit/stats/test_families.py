"""Several arms together: Holm's known answer, Dunnett's constants, the joint bootstrap."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from nlq.stats.evidence import _adjusted, _Joint
from nlq.stats.families import correlation, critical, holm, joint_draws, joint_p


def test_holms_known_answer():
    assert holm([0.001, 0.01, 0.03, 0.04]) == pytest.approx([0.004, 0.03, 0.06, 0.06])
    assert holm([0.04, 0.001, 0.03, 0.01]) == pytest.approx([0.06, 0.004, 0.06, 0.03])
    assert holm([0.9, 0.8]) == [1, 1]


def test_an_arm_without_a_p_still_counts_in_the_family():
    effects = [SimpleNamespace(p_value=0.01), None, None, SimpleNamespace(p_value=0.04)]
    assert _adjusted(effects, _Joint(None, 4)) == pytest.approx([0.04, None, None, 0.12])


@pytest.mark.parametrize(("arms", "constant"), [(2, 2.21), (3, 2.35), (5, 2.51)])
def test_dunnetts_two_sided_constants_are_the_limit_of_many_seeds(arms, constant):
    shared = np.full((arms, arms), 0.5) + 0.5 * np.eye(arms)
    assert critical(math.inf, shared) == pytest.approx(constant, abs=0.02)


def test_agrees_with_scipys_dunnett_where_variances_are_known_well():
    rng = np.random.default_rng(2)
    base, arms = rng.normal(0, 1, 200), [rng.normal(m, 1, 200) for m in (0.05, 0.25, 0.2)]
    found = stats.dunnett(*arms, control=base, rng=np.random.default_rng(0))
    shared = np.full((3, 3), 0.5) + 0.5 * np.eye(3)
    assert [joint_p(t, 796, shared) for t in found.statistic] == pytest.approx(list(found.pvalue), abs=0.01)


@pytest.mark.parametrize(("arms", "seeds"), [(2, 3), (4, 5), (8, 5), (4, 10)])
def test_intervals_of_several_arms_hold_together(arms, seeds):
    """Each arm's own variance from few seeds, correlations as estimated: Dunnett's constants miss in 7 to 9 %."""
    rng = np.random.default_rng(3)
    losses = rng.standard_normal((20000, arms + 1, seeds))
    deltas_NAS = losses[:, :1] - losses[:, 1:]
    largest_N = np.abs(deltas_NAS.mean(2) / deltas_NAS.std(2, ddof=1) * seeds**0.5).max(1)
    found = [critical(seeds - 1, correlation(deltas_NAS[i].T, seeds)) for i in range(20)]
    assert np.mean([np.mean(largest_N > c) for c in found]) == pytest.approx(0.05, abs=0.006)


def test_p_and_interval_of_several_arms_agree():
    shared = np.full((3, 3), 0.5) + 0.5 * np.eye(3)
    assert joint_p(critical(4, shared), 4, shared) == pytest.approx(0.05, abs=1e-3)
    assert joint_p(60, 4, shared) == pytest.approx(3 * 2 * stats.t.sf(60, 4))


def test_one_arm_is_students_t():
    assert critical(8, np.eye(1)) == pytest.approx(stats.t.ppf(0.975, 8))
    assert joint_p(-2.5, 8, np.eye(1)) == pytest.approx(2 * stats.t.sf(2.5, 8))


def test_arms_that_move_together_count_as_one():
    assert critical(8, np.ones((3, 3))) == pytest.approx(stats.t.ppf(0.975, 8), abs=0.02)
    assert critical(8, np.eye(3)) <= stats.t.ppf(1 - 0.025 / 3, 8)


def test_joint_bootstrap_has_the_spread_of_both_sources_and_the_shared_baseline():
    rng = np.random.default_rng(4)
    base = rng.normal(0, 0.1, (6, 1)) + rng.normal(0, 1, (1, 300))
    arms = np.stack([base - rng.normal(0, 0.1, (6, 1)) - rng.normal(0, 1, (1, 300)) for _ in range(2)])
    tokens = np.full(300, 1)
    draws = joint_draws(arms, tokens, 4000)
    assert draws.mean(0) == pytest.approx(arms.mean((1, 2)), abs=0.01)
    seeds = arms.mean(2).var(1) / 6  # a bootstrap over S seeds has (S - 1)/S of the variance
    documents = arms.mean(1).var(1) / 300
    assert draws.var(0) == pytest.approx(seeds + documents, rel=0.1)
    assert 0.3 < correlation(draws, 6)[0, 1] < 0.9
    assert np.array_equal(draws, joint_draws(arms, tokens, 4000))


def test_arms_that_never_vary_count_as_unrelated():
    assert np.array_equal(correlation(np.zeros((10, 2)), 5), np.eye(2))
