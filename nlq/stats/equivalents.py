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
    params: Sequence[int], losses_nats: Sequence[float], variant_nats: float, draws_BA: Floats, floor_nats: float = 0.0
) -> Equivalent:
    """From three or more control sizes, the baseline first: least squares of ln(L - E) on ln N.

    `draws_BA` are resampled losses, the controls' in their order and the variant's last, as `families.joint_draws`
    gives them; each is refitted and the interval is their 2.5 and 97.5 percentiles. A refit in which larger models are
    no better leaves the upper end open. Raises NlqError with fewer sizes, or where no exponent exists.
    """
    if len(set(params)) < FEWEST_SIZES:
        raise NlqError(f"{len(set(params))} control sizes: a local exponent needs {FEWEST_SIZES}")
    means = np.array([[*losses_nats, variant_nats]])
    if (means <= floor_nats).any():
        raise NlqError(f"a loss is at or below the floor of {floor_nats:g} nats")
    (alpha,), (ratio,) = _fits(params, means, floor_nats)
    if not alpha > 0:
        raise NlqError(f"larger controls are not better (exponent {alpha:.4f}): no equivalent parameters")
    _, ratios = _fits(params, draws_BA, floor_nats)
    low, high = (float(np.quantile(ratios, q, method="nearest")) for q in (0.025, 0.975))
    inside = min(losses_nats) <= variant_nats <= max(losses_nats)
    return Equivalent(
        float(ratio), Interval(low, high), float(alpha), len(params), max(params) / params[0], inside
    )  # fmt: skip


def _fits(params: Sequence[int], losses_BA: Floats, floor_nats: float) -> tuple[Floats, Floats]:
    """Exponent and equivalent ratio to the first size of each row; +inf where larger models are no better."""
    x_A = np.log(np.array(params) / params[0])
    y_BA = np.log(np.maximum(losses_BA - floor_nats, 1e-12))
    slope, intercept = np.polyfit(x_A, y_BA[:, :-1].T, 1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = np.exp((y_BA[:, -1] - intercept) / slope)
    return -slope, np.where(slope < 0, ratio, math.inf)


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
    z2 = float(stats.norm.ppf(0.975)) ** 2
    a, b, c = bottom**2 - z2 * v_bottom, top * bottom - z2 * covariance, top**2 - z2 * v_top
    if a <= 0:
        return -math.inf, math.inf
    root = math.sqrt(max(0.0, b * b - a * c))
    return (b - root) / a, (b + root) / a


def _gain(ratio: float) -> str:
    return "∞" if math.isinf(ratio) else f"{100 * (ratio - 1):+.1f}".replace("-", "−")
