"""METHOD section 2 and check_arithmetic.py A: the published effects and which of them rounding explains."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlq.stats.effects import Agreement, Interval, agreement, delta_ll, delta_ppx, reachable

BASE = 2.9441
PRINTED = [
    (2.9165, 0.94, "match", 2.72, "match"),
    (2.9173, 0.91, "match", 2.65, "rounding"),
    (2.9015, 1.45, "match", 4.17, "match"),
    (2.8750, 2.35, "match", 6.68, "match"),
    (2.8736, 2.40, "rounding", 6.81, "match"),
]


def _agreement(effect, loss, base, printed, decimals):
    low, high = reachable(effect, loss, base, decimals)
    return agreement(printed, 100 * effect(loss, base), Interval(100 * low, 100 * high), 2)


@pytest.mark.parametrize(("loss", "ll", "ll_is", "ppx", "ppx_is"), PRINTED)
def test_published_table_1(loss, ll, ll_is, ppx, ppx_is):
    assert _agreement(delta_ll, loss, BASE, ll, 4) == ll_is
    assert _agreement(delta_ppx, loss, BASE, ppx, 4) == ppx_is


@pytest.mark.parametrize(("loss", "printed"), [(2.927, 0.98), (2.928, 0.94), (2.919, 1.24), (2.915, 1.40)])
def test_earlier_version_of_the_paper_is_within_its_rounding(loss, printed):
    assert _agreement(delta_ll, loss, 2.956, printed, 3) != Agreement.DIFFERS


def test_rotary_table():
    assert f"{100 * delta_ll(2.759, 2.809):.2f}" == "1.78"
    assert f"{100 * delta_ppx(2.759, 2.809):.2f}" == "4.88"


def test_what_no_rounding_explains_differs():
    assert _agreement(delta_ll, 2.8736, BASE, 2.50, 4) == Agreement.DIFFERS


def test_what_is_left_of_the_gain_against_the_tuned_baseline():
    assert round(100 * delta_ll(2.8736, 2.8948), 2) == 0.73
    assert round(100 * delta_ppx(2.8736, 2.8948), 1) == 2.1


@given(st.floats(1, 10), st.floats(1, 10))
def test_reachable_holds_the_value_and_the_sign(loss, base):
    for effect in (delta_ll, delta_ppx):
        low, high = reachable(effect, loss, base, 4)
        assert low <= effect(loss, base) <= high
        assert math.copysign(1, effect(loss, base)) == math.copysign(1, base - loss) or loss == base
