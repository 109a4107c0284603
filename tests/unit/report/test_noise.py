"""`nlq noise`: σ over five or more seeds, with its χ² interval."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from nlq.core.errors import NlqError
from nlq.report import evidence, noise
from nlq.report.render import FORMATS, render
from nlq.stats.calibrated import in_words, sigma_for
from nlq.stats.power import best_of
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


SINGLE = {"data": {"corpus": "stdlib"}, "model": {"layers": 2, "width": 96}, "train": {"steps": 300}}


def _kept(fake, **changes):
    measured = noise.read(_source(fake), at_utc="2026-01-02T03:04:05.000Z").measured
    return replace(measured, **changes)


def _one_seed(fake, *kept):
    source = fake.make([replace(a, seeds=(0,)) for a in fake.ARMS], rates=(1e-3, 2e-3, 4e-3))
    source.measured = kept
    return source


def test_one_seed_uses_the_kept_sigma_and_says_so(fake):
    kept = _kept(fake, spec=fake.make().record.members[0].run.spec)
    table = evidence.read(_one_seed(fake, kept))
    row = next(r for r in table.rows if r.arm == "nonlinear-q")
    assert row.z == pytest.approx(row.delta_nats / 2**0.5 / kept.sigma_nats)
    assert row.p_value is None
    assert row.flattery_nats == pytest.approx(best_of(3) * kept.sigma_nats)
    notes = "\n".join(table.notes)
    assert "compares two checkpoints, not two architectures" in notes
    assert f"from nlq noise: {in_words(kept)}" in notes
    assert "6 seeds of Baseline in wd-lr-grid (300 steps, 2026-01-02)" in notes


def test_sigma_of_another_scale_is_not_used(fake):
    table = evidence.read(_one_seed(fake, _kept(fake, spec=SINGLE)))
    assert {row.z for row in table.rows} == {None}
    assert any("no σ is kept for runs of this size" in note for note in table.notes)


def test_own_seeds_come_first_and_a_given_sigma_before_them(fake):
    source = fake.make(rates=(1e-3, 2e-3, 4e-3))
    own = evidence.read(source)
    source.measured = (_kept(fake, spec=source.record.members[0].run.spec),)
    assert evidence.read(source) == own
    assert evidence.read(source, sigma_nats=0.5).rows[0].flattery_nats == pytest.approx(best_of(3) * 0.5 / 2**0.5)


def test_of_several_the_latest_of_the_baseline(fake):
    source = _one_seed(fake)
    spec = source.record.members[0].run.spec
    late, early = (_kept(fake, spec=spec, sigma_nats=s) for s in (0.2, 0.1))
    other = _kept(fake, spec=spec, arm="identity")
    assert sigma_for(load(source, None), None, [other, late, early]).kept == late
    assert sigma_for(load(source, None), None, [other]).kept == other


def test_of_runs_made_elsewhere_only_where_their_size_is_known(fake):
    def told(source, **model):
        for member in source.record.members:
            data = {"corpus": "imported", "sha256": member.run.run_id}
            yield replace(member, run=replace(member.run, spec={"data": data, "model": model, "train": {"steps": 300}}))

    source = fake.make()
    for model, fits in (({"width": 768}, True), ({}, False)):
        source.record = replace(source.record, members=tuple(told(source, **model)))
        first, *_, last = (m.run.spec for m in source.record.members)
        kept = _kept(fake, spec=last)
        assert first["data"] != last["data"]
        assert (sigma_for(load(source, None), None, [kept]).kept == kept) is fits
