"""METHOD 4.6 and section 2: the 35 % and its intervals, the bracket, the surface."""

import math

import numpy as np
import pytest

from nlq.core.errors import NlqError
from nlq.stats.equivalents import Measured, fitted_line, local_fit, two_point, two_point_line
from nlq.stats.surface import Surface, fit_surface

BASE, CONTROL, SCALED, BEST = 2.9441, 2.9165, 2.9173, 2.8736
EPOCH = (477.84, 2143.86, 1.8172, 0.34731, 0.36718)


def _paper(sd, control=CONTROL, floor=0.0):
    return two_point(Measured(BASE, sd), Measured(control, sd), Measured(BEST, sd), 1.125, floor)


def _percent(ratio):
    return round(100 * (ratio - 1), 1)


@pytest.mark.parametrize(("sd", "low", "high"), [(0.0018, 29.9, 43.5), (0.004, 25.2, 60.9)])
def test_the_papers_35_percent_and_fiellers_interval(sd, low, high):
    found = _paper(sd)
    assert (_percent(found.ratio), round(found.exponent, 4)) == (35.4, 0.08)
    assert [_percent(end) for end in found.interval] == [low, high]


def test_scaled_control_and_floors():
    assert _percent(_paper(0.0018, SCALED).ratio) == 36.6
    assert [round(_percent(_paper(0.0018, floor=e).ratio), 1) for e in (1.69, 1.817)] == [35.8, 35.9]
    assert [round(_paper(0.0018, floor=e).exponent, 2) for e in (1.69, 1.817)] == [0.19, 0.21]


def test_what_is_left_against_the_tuned_baseline():
    alpha = _paper(0.0018).exponent
    assert _percent((2.8948 / BEST) ** (1 / alpha)) == 9.6


def test_extrapolation_is_printed_as_a_bound():
    found = _paper(0.0018)
    assert not found.bracketed
    assert str(found) == "≥ +12.5 % (two-point, extrapolated +35.4 %, +29.9 to +43.5 %)"
    inside = two_point(Measured(BASE, 0.001), Measured(CONTROL, 0.001), Measured(2.93, 0.001), 1.125)
    assert str(inside).startswith("+6.")


def test_worse_than_the_baseline():
    found = two_point(Measured(BASE, 0.001), Measured(CONTROL, 0.001), Measured(2.96, 0.001), 1.125)
    assert str(found).startswith("≤ +0.0 % (two-point, extrapolated −")


def test_a_control_that_is_not_clear_of_the_baseline_bounds_nothing():
    found = _paper(0.02)
    assert found.interval == (0.0, math.inf)


def test_local_fit_over_three_sizes():
    rng = np.random.default_rng(0)
    params = [10_000_000, 12_500_000, 16_000_000]
    truth = [3.0 * (n / params[0]) ** -0.08 for n in params]
    variant = 3.0 * 1.3**-0.08
    draws = np.array([*truth, variant]) + rng.normal(0, 0.002, (2000, 4))
    found = local_fit(params, truth, variant, draws)
    assert (found.ratio, found.exponent) == pytest.approx((1.3, 0.08))
    assert found.bracketed
    assert found.interval.low < 1.3 < found.interval.high
    assert str(found).startswith("+30.0 % (+2")


def test_local_fit_refuses_what_it_cannot_know():
    draws = np.full((10, 3), 3.0)
    with pytest.raises(NlqError, match="2 control sizes"):
        local_fit([1, 2], [3.0, 2.9], 2.95, draws)
    with pytest.raises(NlqError, match="not better"):
        local_fit([1, 2, 3], [2.9, 3.0, 3.1], 2.95, np.full((10, 4), 3.0))
    with pytest.raises(NlqError, match="floor"):
        local_fit([1, 2, 3], [3.0, 2.9, 2.8], 1.0, np.full((10, 4), 3.0), 1.5)


def test_surface_recovers_the_one_that_made_its_points():
    truth = Surface(*EPOCH, 0.0, 0)
    grid = [(n, d) for n in np.geomspace(5e7, 1.5e10, 15) for d in np.geomspace(1e9, 1e12, 16)]
    n, d = np.array(grid).T
    exact = fit_surface(n, d, [truth.loss(*point) for point in grid])
    assert exact.points == 240
    assert exact[:5] == pytest.approx(EPOCH, rel=5e-3)
    assert exact.objective < 1e-10
    rng = np.random.default_rng(1)
    noisy = fit_surface(n, d, [truth.loss(*point) * math.exp(rng.normal(0, 2e-3)) for point in grid])
    assert (noisy.E, noisy.alpha, noisy.beta) == pytest.approx(EPOCH[2:], rel=0.05)


@pytest.mark.parametrize(
    ("surface", "worth", "params", "tokens"),
    [((406.4, 410.7, 1.69, 0.34, 0.28), 0.032, 1.30, 1.8), (EPOCH[:5], 0.034, 1.29, 2.0)],
)
def test_what_published_surfaces_say_of_the_papers_gain(surface, worth, params, tokens):
    found = Surface(*surface, 0.0, 245)
    n, d = 84_953_856, 60_000 * 491_520
    assert found.loss(n, d) - found.loss(1.125 * n, d) == pytest.approx(worth, abs=1e-3)
    assert found.params_worth(0.0705, n) == pytest.approx(params, abs=0.01)
    assert found.tokens_worth(0.0705, d) == pytest.approx(tokens, abs=0.1)
    assert found.params_worth(5.0, n) == math.inf


def test_few_points_are_named_and_too_few_refused():
    truth = Surface(*EPOCH, 0.0, 0)
    grid = [(n, d) for n in (1e8, 1e9, 1e10) for d in (1e9, 1e10, 1e11)]
    n, d = np.array(grid).T
    assert fit_surface(n, d, [truth.loss(*point) for point in grid]).scant
    with pytest.raises(NlqError, match="5 points"):
        fit_surface(n[:5], d[:5], [3.0] * 5)
    with pytest.raises(NlqError, match="above 0"):
        fit_surface(n, d, [-1.0] * 9)


def test_the_two_point_line_goes_through_its_ends_and_meets_the_variant_at_its_equivalent():
    ends = [Measured(BASE, 0.002), Measured(CONTROL, 0.002)]
    worth = _paper(0.002).ratio
    line = two_point_line([1000, 1125], ends, [1000, 1125, 1000 * worth, 1000 * 1.125**0.5])
    assert list(line.loss_nats[:3]) == pytest.approx([BASE, CONTROL, BEST])
    assert line.exponent == pytest.approx(_paper(0.002).exponent)
    assert [round(float(h - m), 5) for h, m in zip(line.high, line.loss_nats, strict=True)][:2] == [0.00392, 0.00392]
    assert (line.high - line.loss_nats)[3] == pytest.approx(1.96 * 0.002 / math.sqrt(2), rel=1e-2)


def test_without_a_standard_error_a_line_has_no_band():
    line = two_point_line([1000, 1125], [Measured(BASE, math.inf), Measured(CONTROL, math.inf)], [1000, 1100])
    assert np.isnan(line.low).all() and np.isfinite(line.loss_nats).all()
    with pytest.raises(NlqError, match="two control sizes"):
        two_point_line([1000, 1000], [Measured(BASE, 0.0)] * 2, [1000])
    with pytest.raises(NlqError, match="floor"):
        two_point_line([1000, 1125], [Measured(BASE, 0.0), Measured(CONTROL, 0.0)], [1000], 2.92)


def test_the_fitted_line_is_a_power_law_and_its_band_leaves_out_what_all_sizes_share():
    params = [100, 200, 400]
    losses = [4.0 * n**-0.08 for n in params]
    shared_BA = np.array(losses) * np.linspace(0.9, 1.1, 50)[:, None]
    line = fitted_line(params, losses, shared_BA, [100, 150, 800])
    expected = [4.0 * n**-0.08 for n in (100, 150, 800)]
    assert list(line.loss_nats) == pytest.approx(expected)
    assert list(line.low) == pytest.approx(expected) and list(line.high) == pytest.approx(expected)
    assert (line.sizes, round(line.exponent, 6)) == (3, 0.08)
