"""METHOD 4.4: budgets, interior optima, the bowl of the audit, the expected best of k, the winner's curse."""

import math
from dataclasses import replace

import numpy as np
import pytest

from nlq.core.errors import NlqError
from nlq.core.run import State
from nlq.stats.compare import compare
from nlq.stats.selection import load
from nlq.stats.tuning import (
    Tuned,
    bowl,
    budget,
    cross,
    expected_best,
    further_seeds,
    median_loss,
    optimum,
    tuning_loss,
    winners_curse,
)

AUDIT = {6e-4: 2.9311, 1.2e-3: 2.9053, 2.4e-3: 2.8994, 4.8e-3: 2.8948, 9.6e-3: 2.9103}
"""METHOD 0.1: the tuned baseline's final losses by peak learning rate."""


def test_the_audits_bowl():
    found = bowl(list(AUDIT), list(AUDIT.values()))
    assert round(found.curvature, 4) == 0.0209
    assert round(found.lr_max, 5) == 0.00398
    costs = [round(found.curvature * math.log(f) ** 2, 4) for f in (math.sqrt(2), 2, 4)]
    assert costs == [0.0025, 0.01, 0.0402]
    assert found.loss_nats < 2.8948


def test_no_bowl_at_an_edge_or_beside_a_diverged_run():
    assert bowl([1e-3, 2e-3, 4e-3], [3.0, 2.9, 2.8]) is None
    assert bowl([1e-3, 2e-3, 4e-3], [2.8, 2.9, 3.0]) is None
    assert bowl([1e-3, 2e-3, 4e-3], [3.0, 2.9, math.inf]) is None


@pytest.mark.parametrize(
    ("rates", "tuned"),
    [((1e-3, 2e-3, 4e-3), Tuned.INTERIOR), ((1e-3, 2e-3), Tuned.EDGE), ((2e-3,), Tuned.UNTRIED)],
)
def test_where_the_optimum_lies(fake, rates, tuned):
    assert optimum(load(fake.make(rates=rates), None), "identity").tuned == tuned


def test_the_other_settings_are_held(fake):
    points = tuple({"optim.lr_max": r, "optim.weight_decay": w} for r in (1e-3, 2e-3, 4e-3) for w in (0.1, 0.2))
    found = optimum(load(fake.make([replace(a, points=points) for a in fake.ARMS]), None), "baseline")
    assert (found.tuned, found.axes) == (Tuned.INTERIOR, ())  # two values of the decay are a choice, no search
    assert found.bowl.lr_max == pytest.approx(2e-3, rel=1e-3)


def test_three_values_of_a_setting_are_a_search(fake):
    points = tuple({"optim.lr_max": r, "optim.weight_decay": w} for r in (1e-3, 2e-3, 4e-3) for w in (0.1, 0.2, 0.4))
    found = optimum(load(fake.make([replace(a, points=points) for a in fake.ARMS]), None), "baseline")
    assert (found.tuned, found.axes) == (Tuned.EDGE, ("optim.weight_decay",))


def test_a_diverged_neighbour_closes_the_grid(fake):
    arms = [replace(a, diverged={(2, 0): 50, (2, 1): 60}) for a in fake.ARMS]
    found = optimum(load(fake.make(arms, rates=(1e-3, 2e-3, 4e-3)), None), "baseline")
    assert (found.tuned, found.bowl) == (Tuned.INTERIOR, None)


def test_fresh_seeds_confirm_and_do_not_tune(fake):
    selection = load(fake.confirmed(), None)
    assert str(budget(selection.points["identity"])) == "3 points × 2 seeds"
    assert selection.fresh_seeds(selection.best["identity"]) == (7, 8)


def test_tables_show_confirmed_points_on_fresh_seeds_alone(fake):
    selection = load(fake.confirmed(), None)
    best = selection.best["identity"]
    other = next(p for p in selection.points["identity"] if p is not best)
    assert set(selection.shown_losses(best)) == set(compare(selection, best).seeds) == {7, 8}
    assert set(selection.shown_losses(other)) == set(compare(selection, other).seeds) == {0, 1}
    unconfirmed = load(fake.make(rates=(1e-3, 2e-3)), None)
    assert set(unconfirmed.shown_losses(unconfirmed.reference)) == {0, 1}


def test_the_cross_compares_seeds_that_all_four_have(fake):
    selection = load(fake.confirmed(), None)
    other = next(p for p in selection.points["identity"] if p is not selection.best["identity"])
    moved = replace(selection, best={**selection.best, "identity": other})
    losses = selection.losses(selection.reference)
    assert set(losses) == {0, 1, 7, 8}
    assert cross(moved, "identity").base_at_base == pytest.approx((losses[0] + losses[1]) / 2)


def test_further_seeds_are_the_same_every_time(fake):
    assert further_seeds(load(fake.make(), None), 3) == (2, 3, 4)
    state = {(1, 0): (State.RUNNING, 100)}
    with pytest.raises(NlqError, match="not finished"):
        further_seeds(load(fake.make([*fake.ARMS[:3], replace(fake.ARMS[3], state=state)]), None), 3)
    with pytest.raises(NlqError, match="every seed is fresh"):
        further_seeds(load(fake.make(rates=(2e-3,)), None), 3)


def test_without_a_choice_every_seed_is_fresh(fake):
    selection = load(fake.make(rates=(2e-3,)), None)
    assert selection.fresh_seeds(selection.reference) == (0, 1)
    chosen = load(fake.make(), None)
    assert chosen.fresh_seeds(chosen.reference) == ()


def test_expected_best():
    losses = [3.0, 2.9, 3.2]
    assert expected_best(losses, 1) == pytest.approx(np.mean(losses))
    assert expected_best(losses, 2) == pytest.approx((5 * 2.9 + 3 * 3.0 + 3.2) / 9)
    assert expected_best(losses, 200) == pytest.approx(2.9)
    assert expected_best([2.9, math.inf], 5) == math.inf


def test_winners_curse_in_nats():
    assert winners_curse(29, 0.0018, 1) == pytest.approx(0.00365, abs=1e-5)
    assert winners_curse(1, 0.0018, 1) == 0
    assert winners_curse(5, 0.0018, 4) == pytest.approx(winners_curse(5, 0.0018, 1) / 2)


def test_each_arm_at_the_others_optimum(fake):
    arms = [replace(fake.ARMS[0]), replace(fake.ARMS[3], points=fake.lr_points(2e-3, 4e-3))]
    found = cross(load(fake.make(arms, rates=(1e-3, 2e-3)), None), "nonlinear-q")
    assert found.base_at_base == found.base_at_other
    assert found.other_at_base == found.other_at_other < found.base_at_base
    alone = [replace(fake.ARMS[0], points=fake.lr_points(1e-3)), replace(fake.ARMS[3], points=fake.lr_points(4e-3))]
    assert cross(load(fake.make(alone), None), "nonlinear-q")[1:3] == (None, None)


def test_median_of_points_by_rank(fake):
    source = fake.make([fake.ARMS[0], replace(fake.ARMS[3], diverged={(2, 0): 50})], rates=(1e-3, 2e-3, 4e-3, 8e-3))
    selection = load(source, None)
    ordered = sorted(tuning_loss(selection, p) for p in selection.points["baseline"])
    assert median_loss(selection, "baseline") == pytest.approx(np.median(ordered))
    own = sorted(tuning_loss(selection, p) for p in selection.points["nonlinear-q"])
    assert own[-1] == math.inf
    assert median_loss(selection, "nonlinear-q") == pytest.approx((own[1] + own[2]) / 2)
