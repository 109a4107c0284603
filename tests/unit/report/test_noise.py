"""`nlq noise`: σ over five or more seeds, with its χ² interval."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from nlq.core.errors import NlqError
from nlq.report import noise
from nlq.report.render import FORMATS, render
from nlq.stats.selection import load


def _source(fake, seeds=tuple(range(6)), **changes):
    return fake.make([replace(fake.ARMS[0], seeds=seeds, **changes), replace(fake.ARMS[3], seeds=seeds)])


def test_sigma_of_the_baseline_and_its_interval(fake):
    source = _source(fake)
    selection = load(source, None)
    losses = list(selection.losses(selection.reference).values())
    (row,) = noise.read(source).rows
    assert (row.arm, row.seeds, row.sigma_nats) == ("baseline", 6, pytest.approx(np.std(losses, ddof=1)))
    low, high = row.sigma_interval
    assert stats.chi2.cdf(5 * row.sigma_nats**2 / np.array([low, high]) ** 2, 5) == pytest.approx([0.975, 0.025])


def test_of_another_arm(fake):
    assert noise.read(_source(fake), None, "nonlinear-q").rows[0].arm == "nonlinear-q"
    with pytest.raises(NlqError, match='no arm "nonlinear"'):
        noise.read(_source(fake), None, "nonlinear")


def test_four_seeds_or_a_diverged_one_are_not_enough(fake):
    with pytest.raises(NlqError, match="4 seeds"):
        noise.read(_source(fake, (0, 1, 2, 3)))
    with pytest.raises(NlqError, match="0 seeds"):
        noise.read(_source(fake, diverged={(0, 0): 50, (1, 0): 50}))


@pytest.mark.parametrize("form", FORMATS)
def test_every_format(fake, form):
    assert "Baseline" in render(noise.sheet(noise.read(_source(fake))), form)
