"""How many times the baseline's parameters reach an arm's loss, with an interval (METHOD 4.6)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from nlq.core.errors import NlqError
from nlq.stats.effects import Interval
from nlq.stats.paired import Floats
from nlq.stats.scaling import equivalent_params, local_exponent

FEWEST_SIZES = 3
_Z = float(stats.norm.ppf(0.975))


class Measured(NamedTuple):
    """A mean loss and its standard error, nats a token."""

    loss_nats: float
    se_nats: float


class Equivalent(NamedTuple):
    """`ratio` times the baseline's parameters, its 95 % interval (an end is infinite where data do not bound it).

    `exponent` is the local α of L - E = c N^-α through `sizes` models, the largest `largest` times the baseline.
    `bracketed` says whether the controls' losses enclose the arm's; where not, `ratio` is an extrapolation.
    """

    ratio: float
    interval: Interval
    exponent: float
    sizes: int
    largest: float
    bracketed: bool

    def __str__(self) -> str:
        """As "+35.4 % (two-point, 29.9 to 43.5 %)"; outside the bracket first "≥" what the controls reach."""
        how = "two-point, " if self.sizes < FEWEST_SIZES else ""
        ends = f"{_gain(self.interval.low)} to {_gain(self.interval.high)} %"
        if self.bracketed:
            return f"{_gain(self.ratio)} % ({how}{ends})"
        bound = f"≥ {_gain(self.largest)} %" if self.ratio > 1 else "≤ +0.0 %"
        return f"{bound} ({how}extrapolated {_gain(self.ratio)} %, {ends})"


class Line(NamedTuple):
    """The fit through the controls: L - E = c N^-α with `exponent` α; loss by size and its 95 % band, nats a token.

    Arrays of one length; `low` and `high` are NaN where the data do not bound the loss (one seed, no σ).
    """

    params: Floats
    loss_nats: Floats
    low: Floats
    high: Floats
    exponent: float
    sizes: int


def two_point_line(
    params: Sequence[int], ends: Sequence[Measured], at: Sequence[float], floor_nats: float = 0.0
) -> Line:
    """Through two controls of these parameters, read at other sizes; the band by the delta method on ln(L - E).

    Raises NlqError where both are of one size, or a loss is at or below the floor.
    """
    if len(params) != 2 or params[0] == params[1]:
        raise NlqError("a two-point line needs two control sizes")
    above_2 = np.array([end.loss_nats for end in ends]) - floor_nats
    if (above_2 <= 0).any():
        raise NlqError(f"a loss is at or below the floor of {floor_nats:g} nats")
    x_2, x = np.log(np.array(params, dtype=float)), np.log(np.array(at, dtype=float))
    share = (x - x_2[0]) / (x_2[1] - x_2[0])
    y_2, se_2 = np.log(above_2), np.array([end.se_nats for end in ends]) / above_2
    y = (1 - share) * y_2[0] + share * y_2[1]
    half = _Z * np.hypot((1 - share) * se_2[0], share * se_2[1]) if np.isfinite(se_2).all() else np.full_like(y, np.nan)
    low, high = np.exp(y - half) + floor_nats, np.exp(y + half) + floor_nats
    return Line(np.exp(x), np.exp(y) + floor_nats, low, high, float((y_2[0] - y_2[1]) / (x_2[1] - x_2[0])), 2)


def fitted_line(
    params: Sequence[int],
    losses_nats: Sequence[float],
    draws_BA: Floats | None,
    at: Sequence[float],
    floor_nats: float = 0.0,
) -> Line:
    """Through three or more controls as `local_fit` has it, read at other sizes; the band are percentiles of refits.

    What moves all sizes alike, such as documents that are hard for every model, is taken out of the band: it moves the
    arms that are read off the line as well.
    `draws_BA` are resampled losses of the controls in their order, None where nothing says how they vary: no band.
    Raises NlqError for a loss at or below the floor.
    """
    if min(losses_nats) <= floor_nats:
        raise NlqError(f"a loss is at or below the floor of {floor_nats:g} nats")
    x = np.log(np.array(at, dtype=float) / params[0])
    (slope,), (intercept,) = _slopes(params, np.array([losses_nats]), floor_nats)
    loss = np.exp(intercept + slope * x) + floor_nats
    line = Line(np.exp(x) * params[0], loss, loss * np.nan, loss * np.nan, -float(slope), len(params))
    if draws_BA is None:
        return line
    logs_BA = np.log(np.maximum(draws_BA - floor_nats, 1e-12))
    level_B = logs_BA.mean(axis=1) - np.log(np.array(losses_nats) - floor_nats).mean()
    slope_B, intercept_B = _slopes(params, draws_BA, floor_nats)
    refits_BX = np.exp((intercept_B - level_B)[:, None] + slope_B[:, None] * x) + floor_nats
    low, high = np.quantile(refits_BX, [0.025, 0.975], axis=0)
    return line._replace(low=low, high=high)


def two_point(
    baseline: Measured, control: Measured, variant: Measured, params_ratio: float, floor_nats: float = 0.0
) -> Equivalent:
    """From one control of `params_ratio` times the parameters: m = w^(g_q/g_c), g the log ratios of losses above E.

    The interval is Fieller's for g_q/g_c, whose parts share the baseline's error. Raises NlqError as
    `scaling.local_exponent` and `equivalent_params` do.
    """
    alpha = local_exponent(baseline.loss_nats, control.loss_nats, params_ratio, floor_nats)
    ratio = equivalent_params(baseline.loss_nats, variant.loss_nats, alpha, floor_nats)
    ends = _fieller(*_log_ratios(baseline, control, variant, floor_nats))
    interval = Interval(*(params_ratio**end for end in ends))
    inside = control.loss_nats <= variant.loss_nats <= baseline.loss_nats
    return Equivalent(ratio, interval, alpha, 2, params_ratio, inside)


def local_fit(
    params: Sequence[int],
    losses_nats: Sequence[float],
    variant_nats: float,
    draws_BA: Floats | None,
    floor_nats: float = 0.0,
) -> Equivalent:
    """From three or more control sizes, the baseline first: least squares of ln(L - E) on ln N.

    `draws_BA` are resampled losses, the controls' in their order and the variant's last, as `families.joint_draws`
    gives them; each is refitted and the interval is their 2.5 and 97.5 percentiles. A refit in which larger models are
    no better leaves the upper end open; without draws (None) both ends are. Raises NlqError with fewer sizes, or where
    no exponent exists.
    """
    if len(set(params)) < FEWEST_SIZES:
        raise NlqError(f"{len(set(params))} control sizes: a local exponent needs {FEWEST_SIZES}")
    means = np.array([[*losses_nats, variant_nats]])
    if (means <= floor_nats).any():
        raise NlqError(f"a loss is at or below the floor of {floor_nats:g} nats")
    (alpha,), (ratio,) = _fits(params, means, floor_nats)
    if not alpha > 0:
        raise NlqError(f"larger controls are not better (exponent {alpha:.4f}): no equivalent parameters")
    inside = min(losses_nats) <= variant_nats <= max(losses_nats)
    ends = Interval(0.0, math.inf) if draws_BA is None else percentiles(_fits(params, draws_BA, floor_nats)[1])
    return Equivalent(float(ratio), ends, float(alpha), len(params), max(params) / params[0], inside)


def percentiles(ratios_B: Floats) -> Interval:
    """The 95 % interval of resampled ratios, which may be infinite: ends are ratios that were drawn."""
    low, high = (float(np.quantile(ratios_B, q, method="nearest")) for q in (0.025, 0.975))
    return Interval(low, high)


def _fits(params: Sequence[int], losses_BA: Floats, floor_nats: float) -> tuple[Floats, Floats]:
    """Exponent and equivalent ratio to the first size of each row; +inf where larger models are no better."""
    slope, intercept = _slopes(params, losses_BA[:, :-1], floor_nats)
    y_B = np.log(np.maximum(losses_BA[:, -1] - floor_nats, 1e-12))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = np.exp((y_B - intercept) / slope)
    return -slope, np.where(slope < 0, ratio, math.inf)


def _slopes(params: Sequence[int], losses_BA: Floats, floor_nats: float) -> tuple[Floats, Floats]:
    """Slope and intercept of each row's least squares of ln(L - E) on ln(N / N of the first size)."""
    x_A = np.log(np.array(params) / params[0])
    slope, intercept = np.polyfit(x_A, np.log(np.maximum(losses_BA - floor_nats, 1e-12)).T, 1)
    return slope, intercept


def _log_ratios(
    baseline: Measured, control: Measured, variant: Measured, floor_nats: float
) -> tuple[float, float, float, float, float]:
    """g_q, g_c, their variances and covariance, by the delta method."""
    base, ctrl, var = (m.loss_nats - floor_nats for m in (baseline, control, variant))
    v_base, v_ctrl, v_var = (
        (m.se_nats / above) ** 2 for m, above in ((baseline, base), (control, ctrl), (variant, var))
    )
    return math.log(base / var), math.log(base / ctrl), v_base + v_var, v_base + v_ctrl, v_base


def _fieller(top: float, bottom: float, v_top: float, v_bottom: float, covariance: float) -> tuple[float, float]:
    """95 % limits of top/bottom for normal parts (Fieller 1954); infinite where `bottom` is not clear of 0."""
    z2 = _Z**2
    a, b, c = bottom**2 - z2 * v_bottom, top * bottom - z2 * covariance, top**2 - z2 * v_top
    if a <= 0:
        return -math.inf, math.inf
    root = math.sqrt(max(0.0, b * b - a * c))
    return (b - root) / a, (b + root) / a


def _gain(ratio: float) -> str:
    return "∞" if math.isinf(ratio) else f"{100 * (ratio - 1):+.1f}".replace("-", "−")
