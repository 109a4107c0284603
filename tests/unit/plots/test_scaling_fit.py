"""`nlq plot scaling-fit`: the paper's 35 %, the report's words, and what stands on the line."""

import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots import scaling_fit
from nlq.report import equivalents

PRINTED = {"baseline": 2.9441, "a": 2.9165, "nonlinear-q": 2.8736}
"""Karbevski 2026, Table 1."""


def _published(fake):
    source = fake.sized((1,))
    members = [m for m in source.record.members if m.run.seed == 0]
    same = {m.arm: 95_573_088 if m.arm == "a" else fake.BASE_PARAMS for m in members}
    source.record = replace(
        source.record,
        members=tuple(replace(m, run=replace(m.run, non_embedding_params=same[m.arm])) for m in members),
    )
    for member in members:
        rows = source.rows[member.run.run_id]
        source.rows[member.run.run_id] = [row._replace(loss_nats=PRINTED[member.arm]) for row in rows]
    return source


def test_the_papers_35_percent(fake):
    data = scaling_fit.read(_published(fake))
    (arm,) = data.arms
    assert (round(100 * (arm.worth.ratio - 1), 1), round(data.line.exponent, 4)) == (35.4, 0.08)
    assert np.isnan(data.line.low).all()
    assert "one seed and no σ" in data.footer
    figure = Figure()
    scaling_fit.draw(data, figure)
    texts = [t.get_text().replace("\n", " ") for legend in figure.legends for t in legend.get_texts()]
    assert "two-point line, α = 0.0800" in texts
    assert any("≥ +12.5 % (two-point, extrapolated +35.4 %" in text for text in texts)


@pytest.mark.parametrize("sizes", [(1,), (1, 2), (1, 2, 3)])
def test_it_says_what_the_report_says_and_the_equivalent_lies_on_the_line(fake, sizes):
    source = fake.sized(sizes, (0.02, 0.06))
    data, table = scaling_fit.read(source), equivalents.read(source)
    assert tuple(control.label for control in data.controls) == table.controls
    assert [str(arm.worth) for arm in data.arms] == [row.equivalent for row in table.rows]
    for arm in data.arms:
        there = math.log(data.controls[0].params * arm.worth.ratio)
        if there < math.log(data.line.params[-1]):
            met = np.exp(np.interp(there, np.log(data.line.params), np.log(data.line.loss_nats)))
            assert met == pytest.approx(arm.loss_nats, rel=1e-6)
    assert ((data.line.low <= data.line.loss_nats) & (data.line.loss_nats <= data.line.high)).all()


def test_controls_are_means_over_seeds_with_their_error(fake):
    first = scaling_fit.read(fake.sized()).controls[0]
    ends = [fake.curve(fake.ARMS[0], {"optim.lr_max": 2e-3}, seed, 300, 300, "confirm") for seed in (0, 1)]
    assert first.params == fake.BASE_PARAMS
    assert first.loss.loss_nats == pytest.approx(np.mean(ends))
    assert first.loss.se_nats == pytest.approx(np.std(ends, ddof=1) / math.sqrt(2))


def test_an_arm_worth_far_more_stands_at_the_edge(fake):
    figure = Figure()
    scaling_fit.draw(scaling_fit.read(fake.sized((1,), (0.5,))), figure)
    assert figure.axes[0].get_xlim()[1] < 2 * fake.BASE_PARAMS
    assert [line for line in figure.axes[0].lines if line.get_marker() == ">"]


def test_without_a_control(fake):
    with pytest.raises(NlqError, match="no control") as error:
        scaling_fit.read(fake.sized(()))
    assert "model.mlp.ratio" in error.value.hint
