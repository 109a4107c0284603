"""`nlq plot seeds` and `throughput`: the values of every run, their means, and what is lost."""

import math
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots import seeds, throughput
from nlq.report import table1


def test_seeds_are_the_losses_behind_table_1(fake):
    source = fake.make()
    rows = {row.arm: row for row in table1.read(source).rows}
    for row in seeds.read(source).rows:
        arm = next(a for a in fake.ARMS if a.name == row.arm)
        assert row.mean.mean == pytest.approx(rows[row.arm].val_loss_nats)
        losses = {s: fake.curve(arm, {"optim.lr_max": 2e-3}, s, 300, 300, "confirm") for s in (0, 1)}
        assert row.values == pytest.approx(losses)


def test_seeds_that_chose_the_point_are_hollow(fake):
    """With one point an arm has chosen nothing."""
    assert [row.hollow for row in seeds.read(fake.make()).rows] == [frozenset({0, 1})] * 4
    assert not any(row.hollow for row in seeds.read(fake.make(rates=(2e-3,))).rows)


def test_a_diverged_seed_leaves_no_mean(fake):
    arms = [fake.ARMS[0], replace(fake.ARMS[1], diverged={(0, 1): 30})]
    data = seeds.read(fake.make(arms, rates=(2e-3,)))
    row = data.rows[1]
    assert (list(row.values), row.lost, row.note, row.centre) == ([0], 1, "1 of 2 diverged", None)
    figure = Figure()
    seeds.draw(data, figure)
    assert "diverged" in [t.get_text() for t in figure.legends[0].get_texts()]


def test_equal_seeds_are_joined_only_where_the_order_of_the_data_is_known(fake):
    source = fake.make()
    assert seeds.read(source).linked
    members = (replace(m, run=replace(m.run, imported_from="log.csv")) for m in source.record.members)
    source.record = replace(source.record, members=tuple(members))
    data = seeds.read(source)
    assert not data.linked and "grey lines" not in data.footer


def test_throughput_beside_the_baseline(fake):
    arms = [fake.ARMS[0], replace(fake.ARMS[1], speed=18_000.0)]
    first, second = throughput.read(fake.make(arms)).rows
    assert list(first.values.values()) == [20_000.0, 20_100.0] * 2
    assert first.note == "baseline, 4 runs"
    assert (second.note, second.mean.mean) == (f"× {18_050 / 20_050:.3f}, 4 runs", 18_050)


def test_speed_is_in_thousands_where_that_is_shorter(fake):
    labels = []
    for fast in (900.0, 20_000.0):
        figure = Figure()
        throughput.draw(throughput.read(fake.make([replace(fake.ARMS[0], speed=fast)])), figure)
        labels.append(figure.axes[0].get_xlabel())
    assert labels == ["Training speed (tokens a second)", "Training speed (thousand tokens a second)"]


def test_an_interval_wider_than_the_axis_is_said(fake):
    figure = Figure()
    seeds.draw(seeds.read(fake.make(fake.ARMS[:1])), figure)
    low, high = seeds.read(fake.make(fake.ARMS[:1])).rows[0].mean.interval
    assert low < figure.axes[0].get_xlim()[0] and math.isfinite(high)
    assert "reaches beyond the axis" in figure.texts[0].get_text()


def test_imported_runs_have_no_speed(fake):
    source = fake.make()
    members = (replace(m, run=replace(m.run, tokens_per_s=None)) for m in source.record.members)
    source.record = replace(source.record, members=tuple(members))
    with pytest.raises(NlqError, match="no run has recorded its speed"):
        throughput.read(source)
