"""`nlq plot loss-vs-flops` and `loss-vs-time`: the cost of every evaluation, by hand."""

from dataclasses import replace

import pytest

from nlq.core.errors import NlqError
from nlq.plots import loss_vs_flops, loss_vs_time, training_dynamics


def _changed(source, arm=None, **changes):
    members = (replace(m, run=replace(m.run, **changes)) if arm in (None, m.arm) else m for m in source.record.members)
    source.record = replace(source.record, members=tuple(members))
    return source


@pytest.mark.parametrize("figure", [loss_vs_flops, loss_vs_time])
def test_losses_are_those_of_training_dynamics(fake, figure):
    source = fake.make()
    for ours, theirs in zip(figure.read(source).lines, training_dynamics.read(source).lines, strict=True):
        assert ours.label == theirs.label
        assert list(ours.loss.mean) == list(theirs.loss.mean)


def test_flops_are_counted_from_the_model(fake):
    """The made-up models cost 6 N a token, and a step has 2,048 tokens."""
    lines = loss_vs_flops.read(fake.make()).lines
    for line, arm in zip(lines, fake.ARMS, strict=True):
        params = fake.BASE_PARAMS + arm.extra_params
        assert list(line.loss.steps) == pytest.approx([6 * params * 2048 * step for step in range(0, 301, 50)])


def test_time_is_that_of_the_updates_before_an_evaluation(fake):
    """Updates take 9 ms each, and 27 ms in one of two seeds."""
    source = fake.make()
    assert list(loss_vs_time.read(source).lines[0].loss.steps) == pytest.approx([0.45 * k for k in range(7)])
    source.table.loc[source.table.run_id == "baseline-1-0", "step_ms"] = 27.0
    assert list(loss_vs_time.read(source).lines[0].loss.steps) == pytest.approx([0.9 * k for k in range(7)])


def test_arms_without_a_cost_are_named(fake):
    data = loss_vs_flops.read(_changed(fake.make(), "identity", flops_per_token=None))
    assert not len(data.lines[1].loss.steps)
    assert "no evaluation, or FLOPs not known: W_Q = I" in data.footer
    source = fake.make()
    source.table = source.table[~source.table.run_id.str.startswith("identity")]
    assert "no recorded time: W_Q = I" in loss_vs_time.read(source).footer


def test_without_any_cost(fake):
    with pytest.raises(NlqError, match="known number of FLOPs"):
        loss_vs_flops.read(_changed(fake.make(), flops_per_token=None))
    source = fake.make()
    source.table = source.table[:0]
    with pytest.raises(NlqError, match="recorded times"):
        loss_vs_time.read(source)


def test_units_of_the_axes():
    assert loss_vs_flops.flops_axis(2.5e19) == (1e18, "Training FLOPs (10¹⁸)")
    assert loss_vs_flops.flops_axis(0.0) == (1.0, "Training FLOPs (10⁰)")
    names = [loss_vs_time.time_axis(seconds).label for seconds in (40.0, 400.0, 40_000.0, 400_000.0)]
    assert names == [f"Training time ({name})" for name in ("seconds", "minutes", "hours", "days")]


def test_a_run_whose_steps_are_not_all_recorded_has_no_time(fake):
    """What lacks one update would seem cheaper: the other seed alone counts."""
    source = fake.make()
    first = source.table.run_id == "baseline-1-0"
    source.table.loc[first, "step_ms"] *= 3
    source.table = source.table[~(first & (source.table.step == 100))]
    assert list(loss_vs_time.read(source).lines[0].loss.steps) == pytest.approx([0.45 * k for k in range(7)])
