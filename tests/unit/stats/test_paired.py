"""METHOD 4.2 and 4.3: clustered errors, pairing by seed, both together."""

import math

import numpy as np
import pytest
from scipy import stats

from nlq.core.run import WindowLosses
from nlq.stats.paired import (
    Design,
    Score,
    beats,
    clustered_se,
    document_interval,
    effect,
    unpaired,
    welch_satterthwaite,
)


def _windows(sums, tokens=None, ids=None):
    sums = np.asarray(sums, dtype=float)
    tokens = np.full(len(sums), 10) if tokens is None else tokens
    ids = np.arange(len(sums)) if ids is None else ids
    return WindowLosses(sums, tokens, ids, sums, tokens)


def _scores(losses, windows=None):
    return {seed: Score(loss, windows[seed] if windows else None) for seed, loss in enumerate(losses)}


def test_singleton_clusters_are_the_naive_error():
    d = np.random.default_rng(0).standard_normal(4000)
    assert clustered_se(d, np.ones(4000, int)) == pytest.approx(d.std(ddof=1) / math.sqrt(4000), rel=1e-12)


def test_ten_fold_copies_are_sqrt_ten_times_the_naive_error():
    d = np.random.default_rng(0).standard_normal(400)
    naive = np.repeat(d, 10).std(ddof=1) / math.sqrt(4000)
    assert clustered_se(10 * d, np.full(400, 10)) / naive == pytest.approx(math.sqrt(10), rel=2e-3)


def test_one_cluster_has_no_error():
    assert clustered_se(np.array([1.0]), np.array([3])) is None


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_seeds_of_one_document_have_an_error_over_seeds_alone(shift):
    """Paired, and with no seed in common."""
    base, other = ([_windows([mean * 10]) for mean in means] for means in ([3.0, 3.1], [2.9, 3.05]))
    theirs = {seed + 5 * shift: score for seed, score in _scores([2.9, 3.05], other).items()}
    found = effect(_scores([3.0, 3.1], base), theirs)
    assert found.se_eval_nats is None
    assert found.interval() is not None


def test_bootstrap_over_documents_agrees_with_the_formula():
    rng = np.random.default_rng(3)
    tokens = rng.integers(5, 60, 300)
    sums = tokens * 0.02 + rng.normal(0, 1, 300) * np.sqrt(tokens)
    low, high = document_interval(sums, tokens)
    assert (high - low) / 3.92 == pytest.approx(clustered_se(sums, tokens), rel=0.1)
    assert document_interval(sums, tokens) == (low, high)


def test_seeds_alone_give_the_paired_t_interval():
    base, other = [3.0, 3.01, 3.03, 3.0, 3.02], [2.9, 2.92, 2.93, 2.91, 2.91]
    found = effect(_scores(base), _scores(other))
    wanted = stats.ttest_rel(base, other)
    assert (found.design, found.df) == (Design.PAIRED, 4)
    assert found.p_value == pytest.approx(wanted.pvalue)
    assert found.interval() == pytest.approx(tuple(wanted.confidence_interval()))


def test_welch_is_there_to_compare_where_pairing_does_not_help():
    base, other = [3.0, 3.01, 3.03, 3.0], [2.93, 2.92, 2.90, 2.94]
    found = unpaired(_scores(base), _scores(other))
    wanted = stats.ttest_ind(base, other, equal_var=False)
    assert found.design == Design.WELCH
    assert found.correlation < 0
    assert (found.p_value, found.df) == pytest.approx((wanted.pvalue, wanted.df))


def test_welch_where_no_seed_is_common():
    base, other = _scores([3.0, 3.01]), {7: Score(2.9), 8: Score(2.95), 9: Score(2.93)}
    assert effect(base, other).design == Design.WELCH


def test_seeds_and_documents_together():
    rng = np.random.default_rng(5)
    shared = rng.normal(30, 5, 200)
    ours = [_windows(shared + rng.normal(0.2, 1, 200)) for _ in range(3)]
    theirs = [_windows(shared + rng.normal(0, 1, 200)) for _ in range(3)]
    losses = [[w.doc_sums.sum() / 2000 for w in arm] for arm in (ours, theirs)]
    losses = [[a + s * 0.01 for s, a in enumerate(arm)] for arm in losses]  # seeds agree, so pairing helps
    found = effect(_scores(losses[0], ours), _scores(losses[1], theirs))
    deltas = np.subtract(*losses)
    mean_d = np.mean([w.doc_sums for w in ours], 0) - np.mean([w.doc_sums for w in theirs], 0)
    se_eval = clustered_se(mean_d, np.full(200, 10))
    assert found.documents == 200
    each = np.array([a.doc_sums - b.doc_sums for a, b in zip(ours, theirs, strict=True)])
    each -= each.mean(1, keepdims=True)
    own = 200 / 199 * each.var(0, ddof=1).sum() / 3 / 2000**2  # differs from seed to seed: in their sd already
    assert found.se_eval_nats**2 == pytest.approx(max(0, se_eval**2 - own))
    assert found.se_nats**2 == pytest.approx(deltas.var(ddof=1) / 3 + found.se_eval_nats**2)
    assert 2 <= found.df <= 201


@pytest.mark.parametrize("pair", [effect, unpaired])
def test_documents_that_differ_from_run_to_run_only_are_not_counted_twice(pair):
    rng = np.random.default_rng(8)
    held = []
    for _ in range(400):
        arms = rng.normal(0, 1, (2, 5, 60))
        scores = [_scores(arm.sum(1) / 600, [_windows(sums) for sums in arm]) for arm in arms]
        low, high = pair(*scores).interval()
        held.append(low <= 0 <= high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.025)  # 0.99 were they


def test_pairing_of_documents_removes_what_the_windows_share():
    rng = np.random.default_rng(6)
    shared = rng.normal(30, 5, 400)
    pair = [_windows(shared + rng.normal(0, 0.5, 400)) for _ in range(2)]
    found = effect({0: Score(3.0, pair[0])}, {0: Score(2.99, pair[1])})
    assert found.se_eval_nats < clustered_se(pair[0].doc_sums, pair[0].doc_tokens) / 5


def test_one_seed_has_no_p_value_but_a_z_against_calibrated_noise():
    found = effect({0: Score(2.9441)}, {0: Score(2.8736)})
    assert found.design == "one seed: compares two checkpoints, not two architectures"
    assert (found.p_value, found.interval()) == (None, None)
    assert round(found.z(0.0018)) == 28  # METHOD 0.6
    kept = {0: Score(3.0, _windows([30, 31, 29]))}, {0: Score(2.9, _windows([29, 30, 28.5]))}
    assert effect(*kept).interval() is not None
    assert effect(*kept).p_value is None


def test_other_documents_are_not_compared():
    ours, theirs = _windows([30, 31]), _windows([30, 31], ids=np.array([0, 2]))
    assert effect({0: Score(3.0, ours)}, {0: Score(2.9, theirs)}).se_eval_nats is None


def test_windows_serve_where_documents_are_unknown():
    none = np.array([])
    ours, theirs = (_windows([30 + i, 31, 29])._replace(doc_ids=none, doc_sums=none, doc_tokens=none) for i in (0, 1))
    assert effect({0: Score(3.0, ours)}, {0: Score(2.9, theirs)}).documents == 3


def test_diverged_seeds_leave_no_mean_but_count_among_pairs():
    assert effect(_scores([3.0, 3.1]), _scores([2.9, math.inf])) is None
    assert beats([3.0, 3.1], [2.9, math.inf]) == 0.5


def test_no_seed_at_all():
    assert effect({}, _scores([3.0])) is None
    assert effect({0: Score(3.0)}, {1: Score(2.9)}) is None


def test_degrees_of_freedom_lie_between_the_parts_and_their_sum():
    assert welch_satterthwaite([(1.0, 4.0), (0.0, 100.0)]) == 4
    assert welch_satterthwaite([(1.0, 4.0), (1.0, 4.0)]) == 8
    assert welch_satterthwaite([]) == math.inf


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.7])
def test_coverage_of_the_interval_over_seeds(rho):
    rng = np.random.default_rng(11)
    draws = rng.multivariate_normal([0, 0], 0.0018**2 * np.array([[1, rho], [rho, 1]]), (1500, 5))
    held = [effect(_scores(pair[:, 0]), _scores(pair[:, 1])).interval() for pair in draws]
    assert np.mean([low <= 0 <= high for low, high in held]) == pytest.approx(0.95, abs=0.015)


def test_documents_that_all_differ_alike_need_no_bootstrap():
    tokens = np.array([10, 20, 30])
    assert document_interval(0.5 * tokens, tokens) == (0.5, 0.5)
    assert document_interval(0.0 * tokens, tokens) == (0.0, 0.0)
