"""How many seeds a gap in loss needs, and how much the best of many is flattered (METHOD 4.3 and 4.4)."""

import math

from scipy import integrate, optimize, stats

from nlq.core.errors import NlqError
from nlq.stats.effects import Interval

MOST_SEEDS = 100_000
FEWEST_FOR_NOISE = 5


def detected(
    gap_nats: float, seeds: int, sigma_nats: float, correlation: float | None = None, alpha: float = 0.05
) -> float:
    """Probability that a two-sided t test finds a true gap (its far tail left out), by the noncentral t distribution.

    σ is the sd of one run's loss, in nats. Unpaired with 2S - 2 degrees of freedom, or paired by seed with S - 1 where
    the correlation of the arms over seeds is given: a difference then has the sd σ √(2(1 - ρ)).
    """
    df = 2 * seeds - 2 if correlation is None else seeds - 1
    sd = sigma_nats * math.sqrt(2 * (1 - (correlation or 0.0)))
    critical = float(stats.t.ppf(1 - alpha / 2, df))
    return float(stats.nct.sf(critical, df, gap_nats * math.sqrt(seeds) / sd))


def smallest_gap(
    seeds: int, sigma_nats: float, power: float = 0.8, correlation: float | None = None, alpha: float = 0.05
) -> float:
    """The gap in nats that `seeds` per arm find with probability `power`. Raises NlqError as `check` does."""
    check(sigma_nats, power, correlation, alpha)
    if seeds < 2:
        raise NlqError("one seed has no variance: it finds no gap", "two seeds or more")
    scale = sigma_nats * math.sqrt(2 / seeds)

    def lack(gap: float) -> float:
        return detected(gap, seeds, sigma_nats, correlation, alpha) - power

    high = scale
    while lack(high) < 0:
        high *= 2
    return float(optimize.brentq(lack, 0.0, high, xtol=1e-12))


def seeds_needed(
    gap_nats: float, sigma_nats: float, power: float = 0.8, correlation: float | None = None, alpha: float = 0.05
) -> int:
    """The fewest seeds per arm that find the gap with probability `power`.

    Raises NlqError where the gap is not above 0, where it takes more than MOST_SEEDS, or as `check` does.
    """
    check(sigma_nats, power, correlation, alpha)
    low, high = 1, 2
    while gap_nats > 0 and high < MOST_SEEDS and detected(gap_nats, high, sigma_nats, correlation, alpha) < power:
        low, high = high, 2 * high
    if not gap_nats > 0 or high >= MOST_SEEDS:
        raise NlqError(f"no number of seeds finds a gap of {gap_nats:g} nats", "a gap above 0, such as --gap 0.003")
    while high - low > 1:
        middle = (low + high) // 2
        enough = detected(gap_nats, middle, sigma_nats, correlation, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def check(sigma_nats: float, power: float, correlation: float | None, alpha: float) -> None:
    """Raises NlqError unless σ is above 0, power and alpha between 0 and 1 (power above alpha), and ρ within ±1."""
    if not (sigma_nats > 0 and math.isfinite(sigma_nats)):
        raise NlqError(f"σ must be above 0, found {sigma_nats:g}", "--sigma 0.0018")
    if not 0 < alpha < power < 1:
        raise NlqError(f"power must lie between {alpha:g} and 1, found {power:g}", "--power 0.8")
    if correlation is not None and not -1 <= correlation < 1:
        raise NlqError(f"a correlation lies between -1 and 1, found {correlation:g}", "--correlation 0.5")


def best_of(count: int) -> float:
    """c_k: how many σ the best of k equal configurations is expected to lie below their mean (winner's curse).

    The expected maximum of k standard normals, ∫ x k φ(x) Φ(x)^(k-1) dx (METHOD 4.4); 0 for one.
    """

    def density(x: float) -> float:
        return float(x * count * stats.norm.pdf(x) * stats.norm.cdf(x) ** (count - 1))

    return 0.0 if count < 2 else float(integrate.quad(density, -10, 10)[0])


def noise_interval(sd_nats: float, df: int, confidence: float = 0.95) -> Interval:
    """χ² interval of σ from an sd with `df` degrees of freedom, in nats."""
    low, high = (
        sd_nats * math.sqrt(df / float(stats.chi2.ppf(p, df))) for p in (0.5 + confidence / 2, 0.5 - confidence / 2)
    )
    return Interval(low, high)
