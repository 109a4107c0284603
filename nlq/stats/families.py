"""Several arms against one baseline: p-values and intervals that hold for all of them together (METHOD 4.4)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from nlq.stats.paired import Floats

DRAWS = 2000
_CHUNK = 250
_RIDGE = 1e-4
"""Arms that move together leave a singular matrix, over which scipy's integral is wrong (0.24 for 0.05)."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979)."""
    order = np.argsort(p_values)
    steps = (len(p_values) - np.arange(len(p_values))) * np.asarray(p_values)[order]
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return [float(p) for p in adjusted]


def joint_p(t: float, df: float, correlation_AA: Floats) -> float:
    """P(max |T| ≥ |t|) over A comparisons, T multivariate t: single-step adjusted p (Dunnett 1955 at ρ = 1/2)."""
    arms = len(correlation_AA)
    if arms == 1:
        return 2 * float(stats.t.sf(abs(t), df))
    ends = np.full(arms, abs(t))
    regular_AA = (1 - _RIDGE) * correlation_AA + _RIDGE * np.eye(arms)
    law = stats.multivariate_t(shape=regular_AA, df=df, allow_singular=True, seed=0)  # type: ignore[arg-type]
    inside = law.cdf(ends, lower_limit=-ends, random_state=0)
    return float(np.clip(1 - inside, 0, 1))


def critical(df: float, correlation_AA: Floats, alpha: float = 0.05) -> float:
    """The half-width, in standard errors, of intervals that hold together with probability 1 - alpha."""
    low, high = (float(stats.t.ppf(1 - alpha / 2 / n, df)) for n in (1, len(correlation_AA)))
    if len(correlation_AA) == 1 or joint_p(low, df, correlation_AA) <= alpha:
        return low
    if joint_p(high, df, correlation_AA) >= alpha:
        return high
    return float(optimize.brentq(lambda c: joint_p(c, df, correlation_AA) - alpha, low, high, xtol=1e-3))


def joint_draws(differences_ASJ: Floats, tokens_J: npt.NDArray[np.int64], draws: int = DRAWS) -> Floats:
    """δ of each arm under joint resampling of seeds and documents, shape (draws, A), nats a token.

    The Multi-Bootstrap (Sellam et al., arXiv 2106.16163): one draw takes the same seeds and documents for all arms, so
    that the shared baseline's correlation is kept. `differences_ASJ` are summed document differences in nats.
    """
    rng = np.random.default_rng(0)
    _, seeds, documents = differences_ASJ.shape
    return np.concatenate([
        _draw(differences_ASJ, tokens_J, rng, min(_CHUNK, draws - done), seeds, documents)
        for done in range(0, draws, _CHUNK)
    ])  # fmt: skip


def _draw(
    differences_ASJ: Floats,
    tokens_J: npt.NDArray[np.int64],
    rng: np.random.Generator,
    draws: int,
    seeds: int,
    documents: int,
) -> Floats:
    seeds_BS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)
    documents_BJ = rng.multinomial(documents, np.full(documents, 1 / documents), size=draws).astype(float)
    sums_ASB = differences_ASJ @ documents_BJ.T
    mean_BA = np.einsum("asb,bs->ba", sums_ASB, seeds_BS) / seeds
    return np.asarray(mean_BA / (documents_BJ @ tokens_J)[:, None])


def correlation(draws_BA: Floats) -> Floats:
    """Correlation of the arms' δ, shape (A, A); arms that never vary count as unrelated."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.atleast_2d(np.corrcoef(draws_BA, rowvar=False))
    return np.where(np.isfinite(found), found, np.eye(len(found)))
