"""The full scaling surface L = E + A/N^α + B/D^β, fitted as Hoffmann et al. (2203.15556) meant to (METHOD 4.6)."""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from nlq.core.errors import NlqError
from nlq.stats.paired import Floats
from nlq.stats.printing import plural

HUBER = 1e-3
"""Log residuals beyond this count linearly."""
FEWEST_POINTS = 6
FEWEST_VALUES = 3
"""Different sizes, and different lengths, below which an exponent cannot be found."""

SCANT_POINTS = 20
"""Below so many, say that the fit is not to be trusted; even 240 leave A ± 125 and B ± 1,293."""
DRAWS = 4000
"""Resamples for standard errors."""
_STARTS = tuple(product((0.0, 10.0, 20.0), (0.0, 10.0, 20.0), (0.5,), (0.5,), (0.5,)))


class Surface(NamedTuple):
    """The surface: nats a token at N parameters and D tokens; `objective` is the sum of Huber losses at the fit."""

    A: float
    B: float
    E: float
    alpha: float
    beta: float
    objective: float
    points: int

    def loss(self, params: float, tokens: float) -> float:
        """Nats a token at `params` parameters and `tokens` tokens."""
        return float(self.E + self.A * params**-self.alpha + self.B * tokens**-self.beta)

    def params_worth(self, delta_nats: float, params: float) -> float:
        """How many times `params` lower the loss by δ at the same tokens; +inf where no size does."""
        return _worth(self.A * params**-self.alpha, delta_nats, self.alpha)

    def tokens_worth(self, delta_nats: float, tokens: float) -> float:
        """How many times `tokens` lower the loss by δ at the same size; +inf where no number does."""
        return _worth(self.B * tokens**-self.beta, delta_nats, self.beta)

    @property
    def scant(self) -> bool:
        """Whether there are too few points to trust the fit."""
        return self.points < SCANT_POINTS


def fit_surface(params: Sequence[float], tokens: Sequence[float], losses_nats: Sequence[float]) -> Surface:
    """Fit by L-BFGS from several starts: the sum (not the mean, which stops the optimiser early) of Huber(1e-3) of
    ln L - logsumexp(a - α ln N, b - β ln D, e).

    Raises NlqError with fewer than six points, with one size or one length, or values that are not above 0.
    """
    data = np.array([params, tokens, losses_nats], dtype=float)
    if data.shape[1] < FEWEST_POINTS:
        raise NlqError(
            f"{plural(data.shape[1], 'point')}: a surface of five numbers needs {FEWEST_POINTS}",
            "points of other sizes and lengths: --points FILE, or a sweep with more of them",
        )
    if not (np.isfinite(data).all() and (data > 0).all()):
        raise NlqError("parameters, tokens and losses must be above 0")
    _refuse_few(data[0], "N", "A and α", "sizes")
    _refuse_few(data[1], "D", "B and β", "lengths")
    logs = np.log(data)
    found = min((_descend(logs, np.array(start)) for start in _STARTS), key=lambda p: _objective(p, logs)[0])
    value = _objective(found, logs)[0]
    a, b, e, alpha, beta = (float(v) for v in found)
    return Surface(math.exp(a), math.exp(b), math.exp(e), alpha, beta, value, data.shape[1])


def _refuse_few(values: Floats, axis: str, unknown: str, others: str) -> None:
    """Where an axis has one value its part of the surface cannot be told from E, where two its exponent cannot."""
    found = len(np.unique(values))
    if found < FEWEST_VALUES:
        known = f"one {axis}" if found == 1 else f"two values of {axis}"
        raise NlqError(f"all points have {known}: {unknown} cannot be fitted", f"add points of other {others}")


def _descend(logs: Floats, start: Floats) -> Floats:
    """Twice, the second time from the first end: L-BFGS forgets the curvature that stopped it in a narrow valley."""
    for _ in range(2):
        start = np.asarray(
            optimize.minimize(_scaled, start, args=(logs,), jac=True, method="L-BFGS-B", options=_STOP).x
        )
    return start


_STOP: Any = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}


def _scaled(p: Floats, logs: Floats) -> tuple[float, Floats]:
    """The objective times 1000: tolerances of the optimiser are absolute."""
    value, slope = _objective(p, logs)
    return 1e3 * value, 1e3 * slope


def _objective(p: Floats, logs: Floats) -> tuple[float, Floats]:
    """Sum of Huber losses and its gradient in (a, b, e, α, β)."""
    n, d, loss = logs
    terms, total = _terms(p, logs)
    residual = loss - total
    share = np.exp(terms - total) * -np.clip(residual, -HUBER, HUBER)
    slope = np.array([share[0].sum(), share[1].sum(), share[2].sum(), -(share[0] @ n), -(share[1] @ d)])
    return float(special.huber(HUBER, residual).sum()), slope


def _worth(part: float, delta_nats: float, exponent: float) -> float:
    return (part / (part - delta_nats)) ** (1 / exponent) if delta_nats < part else math.inf


class Spread(NamedTuple):
    """Standard errors of the surface's five numbers, from `draws` resamples of its points."""

    A: float
    B: float
    E: float
    alpha: float
    beta: float
    draws: int


def spread(
    fit: Surface, params: Sequence[float], tokens: Sequence[float], losses_nats: Sequence[float], draws: int = DRAWS
) -> Spread:
    """Bootstrap SEs: points are resampled, and the same objective is fitted again from the surface found.

    By trust regions (the same Huber loss, its gradient exact), which from so near take milliseconds.
    """
    logs, rng = np.log(np.array([params, tokens, losses_nats], dtype=float)), np.random.default_rng(0)
    start = np.array([math.log(fit.A), math.log(fit.B), math.log(fit.E), fit.alpha, fit.beta])
    picks = rng.integers(0, fit.points, (draws, fit.points))
    found = np.array([_refit(start, logs[:, pick]) for pick in picks])
    found[:, :3] = np.exp(found[:, :3])
    a, b, e, alpha, beta = (float(sd) for sd in found.std(axis=0, ddof=1))
    return Spread(a, b, e, alpha, beta, draws)


def _refit(start: Floats, logs: Floats) -> Floats:
    done = optimize.least_squares(
        _residuals, start, _slopes, args=(logs,), loss="huber", f_scale=HUBER, x_scale="jac", max_nfev=200
    )
    return np.asarray(done.x)


def _terms(p: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """The three logarithms of the parts, (3, points), and that of their sum."""
    n, d, _ = logs
    terms = np.stack([p[0] - p[3] * n, p[1] - p[4] * d, np.full_like(n, p[2])])
    return terms, np.asarray(special.logsumexp(terms, axis=0))


def _residuals(p: Floats, logs: Floats) -> Floats:
    return np.asarray(logs[2] - _terms(p, logs)[1])


def _slopes(p: Floats, logs: Floats) -> Floats:
    terms, total = _terms(p, logs)
    share = -np.exp(terms - total)
    return np.stack([*share, -share[0] * logs[0], -share[1] * logs[1]], axis=1)
