"""Several arms against one baseline: p-values and intervals that hold for all of them together (METHOD 4.4)."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import stats

from nlq.stats.paired import Floats

DRAWS = 2000
_CHUNK = 250
_LAW_DRAWS = 20_000
_MOST_SHARED = 30
"""Degrees of freedom over which the arms' variances are drawn together; beyond it they hardly vary at all."""
_FEWEST_HITS = 100
"""Draws beyond |t| below which a p-value is Bonferroni's rather than a count."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given (Holm 1979)."""
    order = np.argsort(p_values)
    steps = (len(p_values) - np.arange(len(p_values))) * np.asarray(p_values)[order]
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return [float(p) for p in adjusted]


def joint_p(t: float, df: float, correlation_AA: Floats) -> float:
    """P(max |T| ≥ |t|) over A comparisons: the single-step adjusted p of max-T, between p and Bonferroni's A p.

    Each T has the arm's own variance below it, as its interval has. The multivariate t of Dunnett (1955), one variance
    for all arms, is the limit of many degrees of freedom: at 4 of them (five seeds) its intervals for four arms miss
    together in 6.9 % instead of 5 %, for eight arms in 8.6 % (docs/CALIBRATION.md).
    """
    alone, arms = 2 * float(stats.t.sf(abs(t), df)), len(correlation_AA)
    beyond = _LAW_DRAWS - int(np.searchsorted(_law(df, correlation_AA), abs(t))) if arms > 1 else 0
    if beyond < _FEWEST_HITS:
        return min(1.0, arms * alone)
    return float(np.clip(beyond / _LAW_DRAWS, alone, arms * alone))


def critical(df: float, correlation_AA: Floats, alpha: float = 0.05) -> float:
    """The half-width, in standard errors, of intervals that hold together with probability 1 - alpha."""
    low, high = (float(stats.t.ppf(1 - alpha / 2 / n, df)) for n in (1, len(correlation_AA)))
    return float(np.clip(np.quantile(_law(df, correlation_AA), 1 - alpha), low, high)) if high > low else low


def _law(df: float, correlation_AA: Floats) -> Floats:
    """Draws of max |T|, sorted: correlated normals over correlated χ variables (the diagonal of a Wishart matrix)."""
    return _drawn(df, correlation_AA.shape, correlation_AA.tobytes())


@lru_cache(maxsize=64)
def _drawn(df: float, shape: tuple[int, int], content: bytes) -> Floats:
    rng = np.random.default_rng(0)
    values_A, vectors_AA = np.linalg.eigh(np.frombuffer(content).reshape(shape))
    root_AA = (vectors_AA * np.sqrt(np.maximum(values_A, 0))).T
    whole = int(min(df, _MOST_SHARED))
    squares_DA = sum(((_normals(rng, root_AA)) ** 2 for _ in range(whole)), np.zeros((_LAW_DRAWS, shape[0])))
    if math.isfinite(df) and df > whole:
        squares_DA += rng.chisquare(df - whole, squares_DA.shape)
    scale_DA = np.sqrt(squares_DA / df) if math.isfinite(df) else 1.0
    return np.sort(np.max(np.abs(_normals(rng, root_AA)) / scale_DA, axis=1))


def _normals(rng: np.random.Generator, root_AA: Floats) -> Floats:
    return np.asarray(rng.standard_normal((_LAW_DRAWS, len(root_AA))) @ root_AA)


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


def correlation(draws_BA: Floats, seeds: int) -> Floats:
    """Correlation of the arms' δ, shape (A, A), shrunk towards unrelated arms; arms that never vary count as unrelated.

    Estimated from few seeds it makes intervals for A arms too narrow (five seeds: they miss together in 5.6 % for four
    arms, 6.5 % for eight). The factor f / (f + A), f = S - 1, gives 4.8 to 5.0 % for 2 to 8 arms and 3 to 10 seeds.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.atleast_2d(np.corrcoef(draws_BA, rowvar=False))
    arms, df = len(found), seeds - 1
    kept = df / (df + arms)
    shrunk = np.where(np.isfinite(found), kept * found, 0.0)
    np.fill_diagonal(shrunk, 1.0)
    return shrunk
