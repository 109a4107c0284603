"""The short form of `make calibration`: the main rates, from few simulated sweeps, and real runs that were kept.

Seeds are fixed, so the figures are the same every time. Limits are wide: a figure fails where all of its interval lies
outside its target.
"""

import json

import calibrate
import numpy as np
import pytest
from figures import better, covers, read, run
from real_seeds import NUMBERS, correlation, fresh, kept, noise, real_figures
from simulated_sweeps import RATE, SIGMA_NATS, Arm, Drawn, World

from nlq.stats.selection import load
from nlq.stats.verdict import Word

SHORT = 200


def _short(batches, sweeps=SHORT):
    return [line for batch in batches for line in run(batch._replace(sweeps=sweeps))]


def _meets(found):
    missed = [line for line in found if line.misses]
    assert not missed


def test_arms_that_are_the_baseline():
    one, loud, *_ = calibrate.same_arms()
    _meets(_short([one, loud]))


def test_several_arms_that_are_the_baseline():
    (four,) = (b for b in calibrate.same_arms() if len(b.world.arms) > 1 and b.world.documents_se_nats is not None)
    _meets(_short([four], 60))


def test_coverage():
    _meets(_short(calibrate.coverage(), 80))


def test_power_is_as_nlq_power_says():
    _meets(_short(list(calibrate.power())[: len(calibrate.GAPS)], 120))


def test_the_best_of_many_is_corrected_by_fresh_seeds():
    naive, _, _, confirmed = calibrate.choosing()
    _meets(_short([naive, confirmed], 60))


def test_equivalence_at_its_margin():
    _meets(_short(calibrate.margins(), 120))


def test_real_runs_of_the_baseline_against_itself():
    known = kept()
    assert len(fresh(known, "baseline")) >= 40
    _meets(real_figures(known, SHORT))


def test_kept_losses_say_where_they_come_from():
    written = json.loads(NUMBERS.read_text())
    assert {"spec_keys", "nlq_version", "torch_version", "commit", "sigma_nats"} <= written.keys()
    assert noise(kept())[1] == pytest.approx(written["sigma_nats"], abs=5e-6)
    assert correlation(kept()) == pytest.approx(written["correlation"], abs=5e-3)


def test_a_simulated_sweep_is_what_its_world_says():
    losses = []
    for i in range(150):
        drawn = Drawn(World(), np.random.default_rng(i))
        selection = load(drawn.source, None)
        assert selection.reference.settings[RATE] == 4.8e-3
        losses += [[selection.losses(point)[seed] for point in selection.best.values()] for seed in range(1, 6)]
    assert np.std(losses, axis=0) == pytest.approx(SIGMA_NATS, rel=0.1)
    assert np.corrcoef(np.transpose(losses))[0, 1] == pytest.approx(0.3, abs=0.1)


def test_a_large_gain_is_called_better_and_its_interval_is_about_it():
    sweeps = [read(World(arms=(Arm(0.02),)), i) for i in range(20)]
    assert all(better(sweep) for sweep in sweeps)
    assert sweeps[0].finding.verdict.word == Word.BETTER
    assert np.mean([covers(sweep) for sweep in sweeps]) > 0.7
    assert abs(np.mean([sweep.finding.effect.delta_nats for sweep in sweeps]) - 0.02) < 0.001
