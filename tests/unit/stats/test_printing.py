"""How numbers are printed."""

import math

import pytest

from nlq.stats.printing import count, loss, percent, plain, rate, setting


@pytest.mark.parametrize(
    ("value", "text"), [(3.6e-3, "3.6e-3"), (5.66e-4, "5.66e-4"), (6e-5, "6e-5"), (1.0, "1e0"), (0, "0"), (None, "–")]
)
def test_rate(value, text):
    assert rate(value) == text


def test_numbers():
    assert percent(0.024) == "2.40 %"
    assert percent(-0.00336) == "−0.34 %"
    assert percent(0.125, sign=True) == "+12.50 %"
    assert loss(2.94405) == "2.9440"
    assert count(84_953_856) == "84.95M"
    assert count(512) == "512"
    assert plain(0.1) == "0.1"


@pytest.mark.parametrize("show", [loss, percent, rate, plain])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_is_a_dash(show, value):
    assert show(value) == "–"


def test_settings():
    assert setting("optim.lr_max", 0.002) == "η_max 2e-3"
    assert setting("optim.weight_decay", 0.05) == "λ 0.05"
    assert setting("model.mlp.kind", "gelu") == "kind gelu"
    assert setting("model.tied", True) == "tied True"
