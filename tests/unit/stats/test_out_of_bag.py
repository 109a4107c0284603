"""Best of many equal points: by how much the naive gain is flattered (METHOD 4.4), and what is left out of bag."""

from dataclasses import replace

import numpy as np
import pytest

from nlq.report import evidence, why
from nlq.stats.documents import Block, whole
from nlq.stats.out_of_bag import Tried, out_of_bag
from nlq.stats.power import best_of

SIGMA, SEEDS, POINTS, SWEEPS = 0.0018, 3, 29, 300


def _equal(rng, points, gain=0.0):
    """Points of one arm that differ by chance alone."""
    found = whole(3.0 - gain + rng.normal(0, SIGMA, (points, SEEDS)))
    return Tried(found, found, apart=True)


def test_best_of_29_equal_points_gains_nothing_out_of_bag():
    rng = np.random.default_rng(0)
    naive, bag = [], []
    for _ in range(SWEEPS):
        base, arm = _equal(rng, 1), _equal(rng, POINTS)
        naive.append(base.show.sums_PSJ.mean((1, 2)).min() - arm.show.sums_PSJ.mean((1, 2)).min())
        bag.append(out_of_bag(base, arm, 200).delta_nats)
    assert np.mean(naive) == pytest.approx(best_of(POINTS) * SIGMA / SEEDS**0.5, rel=0.08)
    assert abs(np.mean(bag)) < 3 * np.std(bag) / SWEEPS**0.5
    assert abs(np.mean(bag)) < 0.1 * np.mean(naive)


def test_a_gain_that_is_there_stays():
    rng = np.random.default_rng(1)
    bag = [out_of_bag(_equal(rng, 5), _equal(rng, 5, 0.01), 200).delta_nats for _ in range(SWEEPS)]
    assert abs(np.mean(bag) - 0.01) < 3 * np.std(bag) / SWEEPS**0.5 < 4e-4


def test_one_seed_resamples_documents_alone():
    rng = np.random.default_rng(2)
    tokens = np.full(400, 20)

    def tried(points):
        found = Block(tokens * rng.normal(3.0, 0.5, (points, 1, 400)), tokens)
        return Tried(found, found, apart=False)

    pairs = [(tried(1), tried(10)) for _ in range(60)]
    naive = [b.show.sums_PSJ.sum(2).min() - a.show.sums_PSJ.sum(2).min() for b, a in pairs]
    bag = [out_of_bag(b, a, 300) for b, a in pairs]
    assert (bag[0].seeds, bag[0].documents) == (1, 400)
    assert abs(np.mean([found.delta_nats for found in bag])) < 0.25 * np.mean(naive) / tokens.sum()
    assert str(bag[0]) == "2,000 resamples of 400 documents"


def test_nothing_to_resample():
    one = Tried(whole(np.full((3, 1), 3.0)), whole(np.full((3, 1), 3.0)), apart=True)
    assert out_of_bag(one, one) is None


def test_evidence_and_why_show_naive_bound_and_corrected(fake):
    source = fake.make([replace(a, seeds=(0, 1, 2)) for a in fake.ARMS], rates=(1e-3, 2e-3, 4e-3))
    table = evidence.read(source)
    row = next(r for r in table.rows if r.arm == "nonlinear-q")
    assert row.corrected_nats == pytest.approx(row.delta_nats, abs=2e-3)
    line = next(note for note in table.notes if note.startswith("Res. GELU") and "not confirmed: naive" in note)
    assert "(c_k σ)" in line
    assert "out of bag (2,000 resamples of 3 seeds and 200 documents)" in line
    steps = {r.step: r.found for r in why.read(source, "nonlinear-q").rows}
    assert steps["δ without confirmation, nats"] in line


def test_without_documents_and_with_a_diverged_point(fake):
    lost = {(0, 1): 50}
    source = fake.make([fake.ARMS[0], replace(fake.ARMS[3], diverged=lost)], rates=(1e-3, 2e-3, 4e-3))
    source.kept = False
    (row,) = evidence.read(source).rows
    assert row.corrected_nats == pytest.approx(row.delta_nats, abs=2e-3)


def test_what_is_not_known_is_a_dash(fake):
    source = fake.make([replace(a, seeds=(0,)) for a in fake.ARMS], rates=(1e-3, 2e-3, 4e-3))
    source.kept = False
    notes = [note for note in evidence.read(source).notes if "not confirmed: naive" in note]
    assert len(notes) == 3
    assert all("flattered by up to – (c_k σ), – out of bag" in note for note in notes)
