"""Tokens, FLOPs and time that the baseline needs for an arm's loss, on a power law whose answers are known."""

import math
from dataclasses import replace

import numpy as np
import pytest

from nlq.report import equivalents
from nlq.stats.lengths import SpeedUp, decayed, savings, tokens_reaching
from nlq.stats.selection import load

POWER, STEPS = 0.1, (100, 200, 400)
BATCH = 1000


def _law(steps):
    return 4.0 * (steps / 100) ** -POWER


def _sweep(fake, worth=300, seeds=(0, 1, 2), lengths=STEPS, **optim):
    """The baseline at several lengths, and an arm of 200 steps as good as the baseline of `worth` steps."""
    arms = [replace(fake.ARMS[0], name="baseline" if n == 200 else f"b{n}", steps=n, seeds=seeds) for n in lengths]
    arms.sort(key=lambda arm: arm.name != "baseline")
    source = fake.make([*arms, replace(fake.ARMS[3], steps=200, seeds=seeds)], every=100, rates=(2e-3,))
    members = []
    for member in source.record.members:
        run, other = member.run, member.arm == "nonlinear-q"
        model = {"query": {"kind": "bottleneck" if other else "linear"}}
        train = {**run.spec["train"], "batch_tokens": BATCH}
        spec = {**run.spec, "model": model, "train": train, "optim": {**run.spec["optim"], **optim}}
        flops = 1100 if other else 1000
        members.append(replace(member, run=replace(run, spec=spec, flops_per_token=flops)))
        loss = _law(worth if other else run.steps_planned) + 1e-4 * run.seed
        source.rows[run.run_id] = [r._replace(loss_nats=loss) for r in source.rows[run.run_id]]
        slow = 1.2 if other else 1.0
        source.table.loc[source.table.run_id == run.run_id, "step_ms"] = 9.0 * slow
    source.record = replace(source.record, members=tuple(members))
    return source


def _saving(source, sigma=None):
    (found,) = savings(source, load(source, None), sigma)
    return found


def test_tokens_flops_and_time_of_a_power_law(fake):
    found = _saving(_sweep(fake))
    assert found.lack is None
    assert found.tokens.ratio == pytest.approx(1.5, rel=1e-3)
    assert found.flops.ratio == pytest.approx(1.5 / 1.1, rel=1e-3)
    assert found.seconds.ratio == pytest.approx(1.5 / 1.2, rel=1e-3)
    assert (found.tokens.lengths, found.tokens.bracketed) == (3, True)
    for worth in (found.tokens, found.flops, found.seconds):
        assert worth.interval.low < worth.ratio < worth.interval.high
    assert str(found.tokens).startswith("1.50× [1.4")


def test_beyond_the_longest_baseline_it_is_a_bound(fake):
    beyond = _saving(_sweep(fake, worth=800)).tokens
    assert (beyond.bracketed, round(beyond.reach, 6)) == (False, 2.0)
    assert str(beyond).startswith("≥ 2.00× (extrapolated 4.0")
    below = _saving(_sweep(fake, worth=50)).tokens
    assert str(below).startswith("≤ 0.50× (extrapolated 0.25×")


def test_two_lengths_are_labelled_and_one_is_refused(fake):
    assert "(two-point)" in str(_saving(_sweep(fake, worth=150, lengths=(100, 200))).tokens)
    refused = _saving(_sweep(fake, lengths=(200,)))
    assert refused.tokens is None
    assert "reading along one run is biased" in refused.lack


def test_a_decay_that_has_not_ended_is_no_baseline(fake):
    source = _sweep(fake, decay_steps=400)
    assert [decayed(p) for ps in load(source, None).points.values() for p in ps].count(True) == 1
    assert "learning rate has not decayed" in _saving(source).lack


def test_one_seed_bounds_nothing_without_a_sigma(fake):
    source = _sweep(fake, seeds=(0,))
    assert _saving(source).tokens.interval is None
    assert str(_saving(source).tokens) == "1.50×"
    wide = _saving(source, 0.01).tokens.interval
    assert wide.low < 1.4 < 1.6 < wide.high


def test_other_devices_are_no_time(fake):
    source = _sweep(fake)
    first, *rest = source.record.members
    moved = replace(first, run=replace(first.run, provenance=replace(first.run.provenance, device="cuda")))
    source.record = replace(source.record, members=(moved, *rest))
    found = _saving(source)
    assert (found.seconds, found.tokens is None) == (None, False)


def test_interpolation_in_logarithms_and_where_longer_is_no_better():
    tokens = np.array([1e9, 2e9, 4e9])
    losses = _law(100 * tokens / 1e9)[None]
    assert tokens_reaching(tokens, losses, np.array([_law(300)]))[0] == pytest.approx(3e9)
    flat = np.array([[3.0, 3.0, 3.0]])
    assert math.isinf(tokens_reaching(tokens, flat, np.array([2.9]))[0])
    assert str(SpeedUp(math.inf, None, 3, 2.0, False)) == "≥ 2.00× (extrapolated ∞×)"


def test_the_report_shows_all_four(fake):
    table = equivalents.read(_sweep(fake))
    (row,) = table.rows
    assert (row.arm, row.tokens_ratio) == ("nonlinear-q", pytest.approx(1.5, rel=1e-3))
    assert table.lengths == ("Baseline 100.00K", "Baseline 200.00K", "Baseline 400.00K")
    assert any("complete decay" in note for note in table.notes)


def test_parameters_are_not_read_before_the_decay_has_ended(fake):
    table = equivalents.read(_sweep(fake))  # compared at step 100, the end of the shortest
    assert "read at step 100, before its learning rate has decayed" in table.rows[0].lack
    assert table.rows[0].val_loss_nats == pytest.approx(_law(300) + 1e-4)
    assert table.controls == ("Baseline",)
