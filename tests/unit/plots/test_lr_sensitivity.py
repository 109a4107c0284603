"""`nlq plot lr-sensitivity`: the released curves' bowl, edges, diverged points, other settings."""

import math
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from nlq.plots import lr_sensitivity
from nlq.stats.tuning import Tuned

AUDIT = {6e-4: 2.9311, 1.2e-3: 2.9053, 2.4e-3: 2.8994, 4.8e-3: 2.8948, 9.6e-3: 2.9103}
"""Final losses of the released baselines by peak learning rate."""


def _audit(fake):
    source = fake.make([replace(fake.ARMS[0], seeds=(0,))], rates=tuple(AUDIT), splits=("val",))
    for member in source.record.members:
        rows = source.rows[member.run.run_id]
        rows[-1] = rows[-1]._replace(loss_nats=AUDIT[member.point["optim.lr_max"]])
    return source


def _line(source, arm="baseline"):
    return next(line for line in lr_sensitivity.read(source).lines if line.arm == arm)


def test_the_bowl_of_the_released_curves(fake):
    line = _line(_audit(fake))
    assert {tried.lr_max: tried.mean for tried in line.points} == AUDIT
    assert (line.best.lr_max, line.tuned, line.span) == (4.8e-3, Tuned.INTERIOR, (2.4e-3, 9.6e-3))
    assert round(line.bowl.lr_max, 5) == 0.00398
    assert round(line.bowl.curvature, 4) == 0.0209
    assert [line.bowl.at(rate) for rate in (2.4e-3, 4.8e-3, 9.6e-3)] == pytest.approx([2.8994, 2.8948, 2.9103])


def test_its_picture_names_optimum_and_vertex(fake):
    figure = Figure()
    lr_sensitivity.draw(lr_sensitivity.read(_audit(fake)), figure)
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["Baseline: best 4.8e-3, vertex 3.98e-3"]
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["6e-4", "1.2e-3", "2.4e-3", "4.8e-3", "9.6e-3"]
    assert figure.axes[0].get_xscale() == "log"


def test_points_are_means_over_tuning_seeds_of_the_losses_that_choose(fake):
    line = _line(fake.make(rates=(1e-3, 2e-3, 4e-3)))
    seeds = [fake.curve(fake.ARMS[0], {"optim.lr_max": 4e-3}, seed, 300, 300, "select") for seed in (0, 1)]
    assert line.points[2].seeds == pytest.approx(seeds)
    assert line.points[2].mean == pytest.approx(sum(seeds) / 2)


def test_an_optimum_at_the_edge_has_no_vertex(fake):
    line = _line(fake.make(rates=(1e-3, 2e-3)))
    assert (line.tuned, line.bowl, line.span, line.best.lr_max) == (Tuned.EDGE, None, None, 2e-3)


def test_a_diverged_seed_puts_its_rate_at_the_top_edge(fake):
    arms = [replace(fake.ARMS[0], diverged={(3, 1): 40})]
    data = lr_sensitivity.read(fake.make(arms, rates=(1e-3, 2e-3, 4e-3, 8e-3)))
    tried = data.lines[0].points[3]
    assert math.isinf(tried.mean) and len(tried.seeds) == 1
    figure = Figure()
    lr_sensitivity.draw(data, figure)
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [list(mark.get_xdata()) for mark in marks] == [[8e-3]]
    assert "a seed diverged" in [t.get_text() for t in figure.legends[1].get_texts()]


def test_points_with_other_settings_are_not_joined(fake):
    points = tuple({"optim.lr_max": r, "optim.weight_decay": w} for r in (1e-3, 2e-3, 4e-3) for w in (0.1, 0.4))
    line = _line(fake.make([replace(fake.ARMS[0], points=points)]))
    assert [tried.lr_max for tried in line.points if tried.held] == [1e-3, 2e-3, 4e-3]
    assert sum(not tried.held for tried in line.points) == 3


def test_an_arm_whose_grid_has_no_learning_rate_stands_at_its_specs(fake):
    points = ({"optim.weight_decay": 0.1}, {"optim.weight_decay": 0.2})
    line = _line(fake.make([replace(fake.ARMS[0], points=points)]))
    assert ({tried.lr_max for tried in line.points}, line.tuned) == ({1e-3}, Tuned.UNTRIED)


def test_poor_rates_lie_above_the_axis_and_are_counted(fake):
    figure = Figure()
    lr_sensitivity.draw(lr_sensitivity.read(fake.make(fake.ARMS[:1], rates=(1e-6, 1e-3, 2e-3, 4e-3))), figure)
    assert figure.axes[0].get_ylim()[1] < 3.05
    assert "▲ 1 point above the axis" in figure.texts[0].get_text()
