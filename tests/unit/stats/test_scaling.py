"""METHOD section 2: the local Chinchilla exponent and what the paper's gain is worth in parameters."""

import pytest

from nlq.core.errors import NlqError
from nlq.stats.scaling import equivalent_params, local_exponent


def test_local_exponent_of_the_paper():
    assert round(local_exponent(2.9441, 2.9165, 1.125), 4) == 0.0800


def test_equivalent_parameters_of_the_paper():
    exponent = local_exponent(2.9441, 2.9165, 1.125)
    assert round(equivalent_params(2.9441, 2.8736, exponent), 3) == 1.354


def test_with_the_scaled_control():
    exponent = local_exponent(2.9441, 2.9173, 1.125)
    assert round(equivalent_params(2.9441, 2.8736, exponent), 3) == 1.366


@pytest.mark.parametrize(("floor", "alpha"), [(1.69, 0.19), (1.8172, 0.21)])
def test_a_floor_moves_the_exponent_but_not_the_equivalent(floor, alpha):
    exponent = local_exponent(2.9441, 2.9165, 1.125, floor)
    assert round(exponent, 2) == alpha
    assert 1.358 <= equivalent_params(2.9441, 2.8736, exponent, floor) <= 1.3595


def test_what_has_no_exponent_says_why():
    with pytest.raises(NlqError, match="more parameters"):
        local_exponent(2.9, 2.8, 1.0)
    with pytest.raises(NlqError, match="floor"):
        local_exponent(2.9, 1.0, 1.125, 1.69)
    with pytest.raises(NlqError, match="not better"):
        equivalent_params(2.9, 2.8, local_exponent(2.9, 2.95, 1.125))
