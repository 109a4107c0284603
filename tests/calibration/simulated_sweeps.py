"""Whole sweeps as numbers: tuned on `select` by seed 0, confirmed by fresh seeds on `confirm`, read as real ones are.

A run's loss is level + bowl(learning rate) - gain + its seed's share + what its documents add. The sd of a run over
seeds on the fixed documents is the arm's σ; the order of the data gives a share ρ of σ² to all arms of one seed.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from nlq.core.noise import Noise
from nlq.core.run import EvalPoint, Member, RunRecord, State, SweepRecord, WindowLosses
from nlq.stats.paired import Floats
from nlq.stats.selection import load
from nlq.stats.tuning import further_seeds

SIGMA_NATS = 0.0018
"""sd of a 124M run's final loss over seeds (METHOD 4.1)."""
DOCUMENTS_SE_NATS = 0.0007
"""Document-clustered SE of the difference of two checkpoints (METHOD 4.2)."""
LEVEL_NATS = 2.94
CURVATURE = 0.021
"""Of the bowl around the best learning rate, nats per (ln LR)², from the released curves of the 124M baseline."""
RATES = (1.2e-3, 2.4e-3, 4.8e-3, 9.6e-3, 19.2e-3)
STEPS = 100
RATE = "optim.lr_max"
APART = 1000
"""Between the seeds of arms that share none."""


class Losses(NamedTuple):
    """Of one run, nats a token, on the half that selects and on the half that confirms."""

    select: float
    confirm: float


@dataclass(frozen=True)
class Arm:
    """The truth about an arm: its gain over the baseline's level, σ of a run, and its own gain on each document (as
    the SE of the mean over documents), all in nats a token."""

    gain_nats: float = 0.0
    sigma_nats: float = SIGMA_NATS
    documents_se_nats: float = 0.0


@dataclass(frozen=True)
class World:
    """What is true in a simulated sweep. `arms` stand beside a baseline of sd `sigma_nats`.

     `correlation` is ρ between arms over seeds; `paired` gives all arms the same fresh seeds. `documents_se_nats` is
     the clustered SE of a difference of two runs, None where no window losses are kept. `off_centre` draws the best
     learning rate anywhere between two grid points instead of on one; `flat` makes all `rates` equal. The highest rate
     diverges with probability `diverging`.
    With `fresh` 0 the sweep is not confirmed: `tuning` seeds both choose and show.
    """

    arms: tuple[Arm, ...] = (Arm(),)
    sigma_nats: float = SIGMA_NATS
    correlation: float = 0.3
    paired: bool = True
    fresh: int = 5
    tuning: int = 1
    rates: tuple[float, ...] = RATES
    base_rates: tuple[float, ...] | None = None
    flat: bool = False
    off_centre: bool = False
    curvature: float = CURVATURE
    diverging: float = 0.5
    documents: int = 100
    documents_se_nats: float | None = DOCUMENTS_SE_NATS


@dataclass
class Simulated:
    """One sweep drawn from a world: the part of the store's reader that tables and figures use."""

    members: list[Member] = field(default_factory=list)
    rows: dict[str, list[EvalPoint]] = field(default_factory=dict)
    kept: dict[str, WindowLosses] = field(default_factory=dict)

    def add(self, arm: str, rate: float, seed: int, losses: Losses | None, windows: WindowLosses | None = None) -> None:
        """One run with its losses on `select` and `confirm`; None where it diverged."""
        run_id = f"{arm}-{rate:g}-{seed}"
        lost = losses is None
        record = RunRecord(
            run_id, run_id, State.DIVERGED if lost else State.COMPLETED, {"train": {"steps": STEPS}}, seed, 1, 1, 1,
            STEPS, STEPS, None, None, STEPS if lost else None, None, None, 0, "2026-01-01T00:00:00Z", None, None,
        )  # fmt: skip
        self.members.append(Member(arm, arm, {RATE: rate}, record))
        read = zip(("select", "confirm"), losses or (), strict=False)
        self.rows[run_id] = [EvalPoint(STEPS, split, nats, 1, f"batches-{seed}", "windows") for split, nats in read]
        if windows is not None and not lost:
            self.kept[run_id] = windows

    def sweep(self, name: str | None = None) -> SweepRecord:
        """The only sweep there is."""
        return SweepRecord("simulated", "baseline", "2026-01-01T00:00:00Z", tuple(self.members))

    def evals(self, run_ids: Iterable[str]) -> dict[str, list[EvalPoint]]:
        """One evaluation of each split, at the last step."""
        return {run_id: self.rows[run_id] for run_id in run_ids}

    def noises(self) -> list[Noise]:
        """None is kept."""
        return []

    def steps(self, run_ids: Iterable[str]) -> pd.DataFrame:
        """None: nothing was trained."""
        return pd.DataFrame(columns=["run_id", "step", "loss_nats", "grad_norm", "lr", "step_ms"])

    def windows(self, run_id: str, step: int, split: str) -> WindowLosses | None:
        """Of the `confirm` split, where the world keeps them."""
        return self.kept.get(run_id) if split == "confirm" else None


@dataclass(frozen=True)
class _Documents:
    """What all runs of a sweep are evaluated on; one document's sd that gives an SE of 1 of the mean is `scale`."""

    tokens_J: Floats  # noqa: N815
    text_J: Floats  # noqa: N815

    @property
    def scale(self) -> float:
        return float(self.tokens_J.sum()) / math.sqrt(float(self.tokens_J @ self.tokens_J))

    def mean(self, values_J: Floats) -> float:
        return float(values_J @ self.tokens_J) / float(self.tokens_J.sum())


class Drawn:
    """One sweep drawn from a world: `source` is what reports read, `best_rate` and `level` the truth of its bowl."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng, self.source = world, rng, Simulated()
        J = world.documents
        tokens_J = np.floor(rng.lognormal(6, 0.8, J)) + 1
        self.documents = _Documents(tokens_J, rng.gamma(40, 1 / 40, J) * LEVEL_NATS)
        shift = rng.uniform(-0.5, 0.5) if world.off_centre else 0.0
        self.best_rate = world.rates[len(world.rates) // 2] * 2**shift
        self.orders: dict[int, float] = {}
        self.truths = {"baseline": Arm(0.0, world.sigma_nats)} | {f"arm-{i}": a for i, a in enumerate(world.arms, 1)}
        self.own = {
            name: rng.standard_normal(J) * truth.documents_se_nats * self.documents.scale
            for name, truth in self.truths.items()
        }
        self._tune()
        if world.fresh:
            self._confirm()

    def miss(self, rate: float) -> float:
        """By how many nats a learning rate loses to the best one."""
        return 0.0 if self.world.flat else self.world.curvature * math.log(rate / self.best_rate) ** 2

    def _rates(self, name: str) -> tuple[float, ...]:
        return self.world.base_rates or self.world.rates if name == "baseline" else self.world.rates

    def _tune(self) -> None:
        for name in self.truths:
            for rate in self._rates(name):
                for seed in range(self.world.tuning):
                    lost = rate == max(RATES) and self.rng.random() < self.world.diverging
                    self._run(name, rate, seed, lost=lost)

    def _confirm(self) -> None:
        """Fresh seeds of the points that nlq itself chooses, under the numbers that it names."""
        selection = load(self.source, None)
        seeds = further_seeds(selection, self.world.fresh)
        for place, (name, point) in enumerate(selection.best.items()):
            for seed in seeds:
                self._run(name, float(point.settings[RATE]), seed + (0 if self.world.paired else APART * place))

    def _run(self, name: str, rate: float, seed: int, *, lost: bool = False) -> None:
        """One run: its losses on both halves and, where kept, those by document of `confirm`."""
        truth = self.truths[name]
        level = LEVEL_NATS - truth.gain_nats + self.miss(rate) + self._of_seed(truth, seed)
        shown, windows = self._shown(level, name)
        losses = None if lost else Losses(level + self._documents_noise(truth), shown)
        self.source.add(name, rate, seed, losses, windows)

    def _noise_se(self) -> float:
        """SE over documents of one run's own deviations: 1/√2 of a difference's."""
        return (self.world.documents_se_nats or 0.0) / math.sqrt(2)

    def _of_seed(self, truth: Arm, seed: int) -> float:
        """The seed's share: ρ of the variance belongs to the order of the data and is the same in all arms."""
        shared = self.orders.setdefault(seed, float(self.rng.standard_normal()))
        own, rho = float(self.rng.standard_normal()), self.world.correlation
        both = truth.sigma_nats * (math.sqrt(rho) * shared)
        return both + math.sqrt(max(0.0, (1 - rho) * truth.sigma_nats**2 - self._noise_se() ** 2)) * own

    def _documents_noise(self, truth: Arm) -> float:
        return float(self.rng.standard_normal()) * math.hypot(self._noise_se(), truth.documents_se_nats)

    def _shown(self, level: float, name: str) -> tuple[float, WindowLosses | None]:
        """The loss on `confirm`: of documents where they are kept, else the level alone."""
        documents = self.documents
        if self.world.documents_se_nats is None:
            return level, None
        noise_J = self.rng.standard_normal(len(documents.tokens_J)) * self._noise_se() * documents.scale
        extra_J = noise_J + self.own[name]
        sums_J = documents.tokens_J * (documents.text_J - documents.mean(documents.text_J) + level + extra_J)
        counts_J = documents.tokens_J.astype(np.int64)
        windows = WindowLosses(sums_J, counts_J, np.arange(len(sums_J)), sums_J, counts_J)
        return level + documents.mean(extra_J), windows
