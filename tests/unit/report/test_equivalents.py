"""`nlq report --equivalents`: which arms are controls, and what the others are worth."""

from dataclasses import replace

import pytest

from nlq.report import equivalents
from nlq.report.render import FORMATS, render


def test_controls_are_the_baseline_in_other_sizes(fake):
    table = equivalents.read(fake.sized())
    assert table.controls == ("Baseline", "a", "b")
    (row,) = table.rows
    assert (row.arm, row.sizes, row.bracketed) == ("nonlinear-q", 3, True)
    assert 1.05 < row.ratio < 1.12
    assert row.ratio_interval.low < row.ratio < row.ratio_interval.high


def test_two_sizes_and_beyond_them(fake):
    (row,) = equivalents.read(fake.sized((1,), (0.06,)), None, 0.0018).rows
    assert row.sizes == 2
    assert row.equivalent.startswith("≥ +12.5 % (two-point, extrapolated +")


def test_without_a_control(fake):
    table = equivalents.read(fake.sized(()))
    assert table.rows[0].equivalent is None
    assert any("no control" in note for note in table.notes)


def test_an_imported_variant_is_no_control_by_its_size(fake):
    """Its spec has a name where slots would stand."""
    source = fake.sized()

    def named(member):
        model = {"layers": 12} | ({"variant": "nonlinear_q"} if member.arm == "nonlinear-q" else {})
        return replace(member, run=replace(member.run, spec={**member.run.spec, "model": model}))

    source.record = replace(source.record, members=tuple(map(named, source.record.members)))
    table = equivalents.read(source)
    assert table.controls == ("Baseline", "a", "b")
    assert [row.arm for row in table.rows] == ["nonlinear-q"]


def one_seed(source):
    source.record = replace(source.record, members=tuple(m for m in source.record.members if m.run.seed == 0))
    return source


@pytest.mark.parametrize("controls", [(), ((1,),)], ids=["three sizes", "two sizes"])
def test_one_seed_bounds_nothing(fake, controls):
    (row,) = equivalents.read(one_seed(fake.sized(*controls))).rows
    assert row.ratio_interval == (0.0, float("inf"))


def test_a_known_sigma_bounds_what_one_seed_does_not(fake):
    narrow, wide = (equivalents.read(one_seed(fake.sized()), None, sigma).rows[0] for sigma in (0.001, 0.004))
    low, high = narrow.ratio_interval
    assert low < narrow.ratio < high
    assert wide.ratio_interval.low < low - 0.01 < high + 0.01 < wide.ratio_interval.high


def test_a_given_sigma_takes_the_place_of_the_seeds_own(fake):
    (own,), (given,) = (equivalents.read(fake.sized(), None, sigma).rows for sigma in (None, 0.05))
    assert given.ratio_interval.high > own.ratio_interval.high


@pytest.mark.parametrize("form", FORMATS)
def test_every_format(fake, form):
    assert "Equivalent" in render(equivalents.sheet(equivalents.read(fake.sized())), form) or form in ("csv", "json")


@pytest.mark.parametrize(("floor", "alpha", "worth"), [(1.69, "0.19", "+35.8 %"), (1.817, "0.21", "+35.9 %")])
def test_the_papers_equivalent_at_a_stated_floor(fake, floor, alpha, worth):
    source = fake.sized((1,))
    losses = {"baseline": 2.9441, "a": 2.9165, "nonlinear-q": 2.8736}
    for member in source.record.members:
        rows = source.rows[member.run.run_id]
        source.rows[member.run.run_id] = [r._replace(loss_nats=losses[member.arm]) for r in rows]
    table = equivalents.read(source, None, 0.0018, floor)
    (row,) = table.rows
    assert "extrapolated +35.4 %" in row.equivalent
    assert (f"{row.exponent:.3f}", f"{row.floor_exponent:.2f}") == ("0.080", alpha)
    assert f"extrapolated {worth}" in row.floor_equivalent
    text = render(equivalents.sheet(table), "md")
    assert "α at E" in text
    assert f"E = {floor:g} nats as stated" in text


def test_without_a_floor_no_column_of_it(fake):
    assert "at E" not in render(equivalents.sheet(equivalents.read(fake.sized())), "md")


def test_command_refuses_a_floor_that_is_none(nlq):
    assert nlq("report", "--evidence", "--floor", 1.69).code == 2
    assert nlq("report", "--equivalents", "--floor", -1).code == 2
