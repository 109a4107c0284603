"""Which point stands for an arm, and where arms are compared."""

import math
from dataclasses import replace

import pytest

from nlq.core.errors import NlqError
from nlq.core.run import State
from nlq.stats.compare import compare
from nlq.stats.origin import origin, remarks, where
from nlq.stats.selection import load


def _arm(fake, index, **changes):
    arms = list(fake.ARMS)
    arms[index] = replace(arms[index], **changes)
    return arms


def _everywhere(value):
    return {(point, seed): value for point in (0, 1) for seed in (0, 1)}


def test_best_point_by_mean_on_select_shown_on_confirm(fake):
    selection = load(fake.make(), None)
    assert selection.at == (300, "select", "confirm")
    assert {p.settings["optim.lr_max"] for p in selection.best.values()} == {2e-3}
    (edge,) = remarks(selection)
    assert edge.startswith("best η_max at the edge of the grid, so not tuned: Baseline, W_Q = I")


def test_selection_never_reads_confirm(fake):
    source = fake.make()
    for run_id, rows in source.rows.items():
        source.rows[run_id] = [
            r._replace(loss_nats=9.0) if r.split == "confirm" and "-1-" in run_id else r for r in rows
        ]
    assert load(source, None).reference.settings["optim.lr_max"] == 2e-3


def test_one_split_serves_for_both(fake):
    assert load(fake.make(splits=("val",)), None).at == (300, "val", "val")


def test_diverged_point_loses_but_stays(fake):
    selection = load(fake.make(_arm(fake, 1, diverged={(1, 0): 200})), None)
    best = selection.best["identity"]
    assert best.settings["optim.lr_max"] == 1e-3
    assert selection.losses(selection.points["identity"][1])[0] == math.inf
    assert len(selection.points["identity"]) == 2


def test_arm_that_always_diverges_is_shown_as_such(fake):
    selection = load(fake.make(_arm(fake, 1, diverged={(0, 0): 120, (0, 1): 130, (1, 1): 200})), None)
    best = selection.best["identity"]
    assert (best.settings["optim.lr_max"], best.diverged_step) == (2e-3, 200)
    assert compare(selection, best).delta is None


def test_only_finished_points_compete(fake):
    selection = load(fake.make(_arm(fake, 3, state={(1, 0): (State.RUNNING, 250)})), None)
    assert selection.best["nonlinear-q"].settings["optim.lr_max"] == 1e-3
    assert selection.at.step == 300


def test_running_arm_does_not_shorten_the_comparison(fake):
    selection = load(fake.make(_arm(fake, 3, state=_everywhere((State.RUNNING, 100)))), None)
    assert selection.at.step == 300
    assert selection.losses(selection.best["nonlinear-q"]) == {}


def test_preview_when_nothing_is_finished(fake):
    arms = [replace(arm, state=_everywhere((State.RUNNING, 100 + 50 * i))) for i, arm in enumerate(fake.ARMS)]
    selection = load(fake.make(arms), None)
    assert (selection.preview, selection.at.step) == (True, 100)
    assert any("preview" in line for line in remarks(selection))


def test_shorter_curves_are_compared_where_both_exist(fake):
    selection = load(fake.make(_arm(fake, 2, steps=200)), None)
    assert selection.at.step == 200
    assert any("compared at step 200" in line for line in remarks(selection))


def test_nan_of_a_finished_run_counts_as_infinite(fake):
    source = fake.make()
    source.rows["identity-1-0"] = [r._replace(loss_nats=math.nan) for r in source.rows["identity-1-0"]]
    assert load(source, None).best["identity"].settings["optim.lr_max"] == 1e-3


def test_pairs_are_the_common_seeds(fake):
    selection = load(fake.make(_arm(fake, 3, seeds=(1, 2, 3))), None)
    comparison = compare(selection, selection.best["nonlinear-q"])
    assert comparison.seeds == (1,)
    assert comparison.delta.interval is None
    lines = "\n".join(remarks(selection))
    assert "over the 1 seed that the baseline has too" in lines
    assert "budgets differ" in lines
    assert "nonlinear-q: one seed: compares two checkpoints" in lines


def test_no_common_seed(fake):
    selection = load(fake.make(_arm(fake, 3, seeds=(5, 6))), None)
    comparison = compare(selection, selection.best["nonlinear-q"])
    assert (comparison.delta, comparison.matched) == (None, None)
    assert any("no seed in common" in line for line in remarks(selection))


@pytest.mark.parametrize("data", ["other", ""])
def test_unmatched_data(fake, data):
    source = fake.make(_arm(fake, 2, data=data))
    if not data:
        source.rows = {k: [r._replace(data_hash="") for r in rows] for k, rows in source.rows.items()}
    selection = load(source, None)
    assert compare(selection, selection.best["mlp-4.75"]).matched is False
    assert any("unmatched data" in line and "mlp-4.75" in line for line in remarks(selection))


def test_matched_data_of_a_run_that_diverged(fake):
    selection = load(fake.make(_arm(fake, 1, diverged=_everywhere(120))), None)
    assert compare(selection, selection.best["identity"]).matched is True


def test_footer_names_the_origin_and_what_is_mixed(fake):
    selection = load(fake.make(_arm(fake, 3, commit="feed00000", dirty=True)), None)
    assert origin(selection) == "sweep wd-lr-grid · 16 runs · commits 12e65b3, feed000+changes · seeds 0, 1"
    assert where(selection) == "validation loss at step 300, split confirm; each arm's best point chosen on select"
    lines = remarks(selection)
    assert "runs mix commits: 12e65b3 (12 runs), feed000+changes (4 runs)" in lines
    assert any("uncommitted" in line for line in lines)


def test_counts_of_what_is_missing(fake):
    state = {(0, 0): (State.FAILED, 10), (0, 1): (State.QUEUED, 0), (1, 0): (State.RUNNING, 50)}
    lines = remarks(load(fake.make(_arm(fake, 2, state=state)), None))
    assert "without a result: 3 of 16 runs (1 queued, 1 running, 1 failed)" in lines


def test_empty_sweeps_are_errors(fake):
    with pytest.raises(NlqError, match="no runs"):
        load(fake.make(()), None)
    source = fake.make()
    source.record = replace(source.record, baseline="gone")
    with pytest.raises(NlqError, match="baseline arm"):
        load(source, None)


def test_no_evaluations_at_all(fake):
    source = fake.make()
    source.rows = {}
    selection = load(source, None)
    assert selection.at.step is None
    assert where(selection).startswith("no step")
