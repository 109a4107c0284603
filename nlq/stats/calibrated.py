"""σ of one run over seeds: measured once, kept, and used where a comparison has no seeds of its own (METHOD 4.1)."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nlq.core.errors import NlqError, nearest
from nlq.core.noise import Noise
from nlq.core.run import IMPORTED
from nlq.stats.power import FEWEST_FOR_NOISE, noise_interval
from nlq.stats.printing import plural
from nlq.stats.seeds import summarise
from nlq.stats.selection import GridPoint, Selection

SCALE = {
    "data": ("corpus", "tokenizer", "sha256"),
    "model": ("layers", "heads", "width", "context", "vocab"),
    "train": ("steps", "batch_tokens"),
}
"""What two runs must share for the noise of one to stand for the other's: size, text and length."""


class Sigma(NamedTuple):
    """σ as the user gave it (nats), and as it was kept of runs of the same scale."""

    given: float | None
    kept: Noise | None

    @property
    def alone(self) -> float | None:
        """σ for a comparison of single runs, in nats."""
        return self.given or (self.kept.sigma_nats if self.kept else None)

    def beside(self, own_nats: float | None) -> float | None:
        """σ where there may be an sd of the runs' own: given, own, kept, in this order; nats."""
        return self.given or own_nats or self.alone


def measure(selection: Selection, arm: str | None, at_utc: str) -> Noise:
    """σ of an arm (the baseline when None) at its best point on the shown split.

    Raises NlqError with fewer than five seeds or a diverged one, for an unknown arm, or while nothing is finished.
    """
    arm = arm or selection.sweep.baseline
    if arm not in selection.best:
        raise NlqError(f'no arm "{arm}" in sweep {selection.sweep.name}', f"--arm: {nearest(arm, selection.best)}")
    point, step = selection.best[arm], selection.at.step
    losses = selection.losses(point)
    found = summarise(losses.values())
    if found is None or found.sd is None or found.n < FEWEST_FOR_NOISE or step is None or selection.preview:
        n = 0 if found is None or point.diverged or selection.preview else found.n
        raise NlqError(f"{point.label}: {n} seeds with a loss; σ needs {FEWEST_FOR_NOISE}", "nlq confirm --seeds 5")
    low, high = noise_interval(found.sd, found.n - 1)
    place = (selection.sweep.name, arm, point.label, step, selection.at.show_split)
    runs = {trace.seed: trace.member.run for trace in point.traces}
    ids = tuple(runs[seed].run_id for seed in losses)
    return Noise(*place, found.mean, found.sd, low, high, ids, runs[next(iter(losses))].spec, at_utc)


def sigma_for(selection: Selection, given_nats: float | None, kept: Sequence[Noise]) -> Sigma:
    """σ for a sweep; of those kept (the latest first) one of the same scale, of the baseline's arm where there is."""
    scale = _scale(_spec(selection.reference))
    fit = [noise for noise in kept if scale is not None and _scale(noise.spec) == scale]
    named = [noise for noise in fit if noise.arm == selection.sweep.baseline]
    return Sigma(given_nats, next(iter(named or fit), None))


def in_words(noise: Noise) -> str:
    """σ, its interval, and what it was measured on and when, in one line."""
    model, train = (noise.spec.get(part, {}) for part in ("model", "train"))
    shape = [f"{name} {model[name]}" for name in ("layers", "width", "context") if model.get(name)]
    if train.get("steps"):
        shape.append(f"{train['steps']} steps")
    measured = f"{plural(noise.seeds, 'seed')} of {noise.label} in {noise.sweep}"
    ends = f"[{noise.low_nats:.5f}, {noise.high_nats:.5f}]"
    when = noise.measured_at_utc[:10]
    return f"σ = {noise.sigma_nats:.5f} nats {ends}, of {measured} ({', '.join([*shape, when])})"


def _spec(point: GridPoint) -> Mapping[str, Any]:
    return point.traces[0].member.run.spec


def _scale(spec: Mapping[str, Any]) -> list[Any] | None:
    """Of a run made elsewhere the digest is that of its own losses; None where its size is not known."""
    elsewhere = spec.get("data", {}).get("corpus") == IMPORTED
    if elsewhere and not spec.get("model", {}).get("width"):
        return None
    settings = [(part, name) for part, names in SCALE.items() for name in names]
    return [spec.get(part, {}).get(name) for part, name in settings if not (elsewhere and name == "sha256")]
