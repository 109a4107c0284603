"""`nlq plot paired-difference`: δ by step and its band by hand, and what cannot be paired."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.plots import paired_difference
from nlq.stats.stepwise import paired_band


def test_a_band_by_hand():
    """Step 0: δ = 0.1, 0.2, 0.3, so 0.2 ± t(2) · 0.1/√3; step 1: the same δ three times, so no width."""
    base = pd.DataFrame({0: [3.1, 2.5], 1: [3.3, 2.6], 2: [3.5, 2.7], 3: [9.0, 9.0]})
    other = pd.DataFrame({0: [3.0, 2.0], 1: [3.1, 2.1], 2: [3.2, 2.2], 4: [1.0, 1.0]})
    band = paired_band(base, other)
    half = 4.302652729749 * 0.1 / math.sqrt(3)
    assert band.seeds == 3
    assert list(band.mean) == pytest.approx([0.2, 0.5])
    assert list(band.low) == pytest.approx([0.2 - half, 0.5])
    assert list(band.high) == pytest.approx([0.2 + half, 0.5])


def test_steps_that_a_seed_lacks_are_left_out():
    base = pd.DataFrame({0: [3.0, 2.9, 2.8], 1: [3.0, 2.9, math.nan]}, index=[0.0, 1.0, 2.0])
    assert list(paired_band(base, base.iloc[1:]).steps) == [1.0]
    alone = paired_band(base[[0]], base[[0]])
    assert (alone.seeds, list(alone.mean), bool(np.isnan(alone.low).all())) == (1, [0.0] * 3, True)
    assert not len(paired_band(base[[0]], base[[1]]).steps)


def test_what_arms_share_cancels(fake):
    """The noise of the made-up batches is that of the seed: δ is the arm's gain, which grows over training."""
    data = paired_difference.read(fake.make())
    line = next(line for line in data.lines if line.arm == "mlp-4.75")
    assert (data.window, line.delta.seeds, len(line.delta.steps)) == (1, 2, 300)
    grown = np.minimum(1.0, 0.1 + np.arange(300) / 300)
    assert np.allclose(line.delta.mean, 0.0276 * grown, atol=1e-3)
    assert np.std(line.loss.mean[150:]) > 0.01
    assert "raw, every step" in data.footer


def test_long_runs_are_averaged_and_it_is_said(fake):
    arms = [replace(arm, seeds=(0,)) for arm in fake.ARMS[:2]]
    data = paired_difference.read(fake.make(arms, steps=6_000, every=1_000, rates=(2e-3,)))
    assert (data.window, len(data.lines[0].delta.steps)) == (10, 600)
    assert "means over 10 steps" in data.footer


def test_other_batches_are_left_out(fake):
    arms = [*fake.ARMS[:2], replace(fake.ARMS[2], data="other")]
    data = paired_difference.read(fake.make(arms))
    assert [line.arm for line in data.lines] == ["identity"]
    assert "left out, no common batches or no training losses recorded: MLP 4.75" in data.footer


@pytest.mark.parametrize(
    ("change", "words"), [("alone", "only arm"), ("data", "baseline's batches"), ("rows", "share")]
)
def test_nothing_to_pair(fake, change, words):
    arms = {"alone": fake.ARMS[:1], "data": [fake.ARMS[0], replace(fake.ARMS[1], data="other")]}
    source = fake.make(arms.get(change, fake.ARMS))
    source.table = source.table[:0] if change == "rows" else source.table
    with pytest.raises(NlqError, match=words) as error:
        paired_difference.read(source)
    assert error.value.hint


def test_arms_share_a_range_unless_it_flattens_one(fake):
    ranges = []
    for gain in (0.03, 0.3):
        figure = Figure()
        arms = [*fake.ARMS[:1], replace(fake.ARMS[1], gain=0.02), replace(fake.ARMS[2], gain=gain)]
        paired_difference.draw(paired_difference.read(fake.make(arms)), figure)
        ranges.append(figure.axes[0].get_ylim() == figure.axes[1].get_ylim())
        assert ("scales of δ differ" in figure.texts[0].get_text()) != ranges[-1]
    assert ranges == [True, False]
