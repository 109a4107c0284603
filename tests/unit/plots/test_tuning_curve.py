"""`nlq plot tuning-curve`: Dodge's formula on trials of a sweep, and medians where one diverged."""

import math
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots import tuning_curve
from nlq.stats.tuning import expected_best, median_best

LOSSES = {1e-3: 3.0, 2e-3: 2.9, 4e-3: 2.95}


def _source(fake, **changes):
    source = fake.make([replace(fake.ARMS[0], **changes)], rates=tuple(LOSSES))
    for member in source.record.members:
        rows = source.rows[member.run.run_id]
        loss = LOSSES[member.point["optim.lr_max"]] + (0.01 if member.run.seed else -0.01)
        source.rows[member.run.run_id] = [row._replace(loss_nats=loss) for row in rows]
    return source


def test_expected_best_of_k_by_hand(fake):
    """L = 2.9, 2.95, 3.0: E_1 = 2.95, E_2 = (5 · 2.9 + 3 · 2.95 + 3.0)/9, E_3 = (19 · 2.9 + 7 · 2.95 + 3.0)/27."""
    (line,) = tuning_curve.read(_source(fake)).lines
    assert line.best == pytest.approx([2.95, (5 * 2.9 + 3 * 2.95 + 3.0) / 9, (19 * 2.9 + 7 * 2.95 + 3.0) / 27])
    assert str(line.budget) == "3 points × 2 seeds"


def test_a_diverged_trial_makes_all_curves_medians(fake):
    """Of (2.9, 2.95, +∞) at least half of single draws are at most 2.95, and 5 of 9 pairs hold 2.9."""
    data = tuning_curve.read(_source(fake, diverged={(0, 1): 20}))
    assert data.by_rank
    assert data.lines[0].best == pytest.approx([2.95, 2.9, 2.9])
    assert "medians, not means" in data.footer


def test_summaries_of_diverged_runs():
    lost = [math.inf] * 3
    assert expected_best([2.9, *lost], 4) == math.inf
    assert [median_best([2.9, *lost], k) for k in (1, 2, 3)] == [math.inf, math.inf, 2.9]
    assert median_best([4.0, 1.0, 3.0, 2.0], 1) == 2.0


def test_arms_may_have_tried_different_numbers(fake):
    arms = [fake.ARMS[0], replace(fake.ARMS[1], points=fake.lr_points(1e-3))]
    data = tuning_curve.read(fake.make(arms, rates=(1e-3, 2e-3, 4e-3)))
    assert [len(line.best) for line in data.lines] == [3, 1]
    figure = Figure()
    tuning_curve.draw(data, figure)
    assert figure.axes[0].get_ylabel().startswith("Expected best of k")


def test_one_point_an_arm_is_no_tuning(fake):
    with pytest.raises(NlqError, match="nothing was tuned"):
        tuning_curve.read(fake.make(rates=(2e-3,)))
