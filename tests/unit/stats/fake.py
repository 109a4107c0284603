"""Synthetic sweeps: a reader that lives in memory, with curves whose every number is a formula."""

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from nlq.core.errors import NlqError
from nlq.core.run import EvalPoint, Member, Provenance, RunRecord, State, SweepRecord, WindowLosses

BASE_PARAMS = 84_953_856
BATCH_TOKENS = 2048


@dataclass
class Arm:
    """An arm of a synthetic sweep: `gain` nats below the baseline at the end, at its best learning rate."""

    name: str
    label: str
    gain: float = 0.0
    extra_params: int = 0
    points: tuple[dict, ...] = ()
    seeds: tuple[int, ...] = (0, 1)
    diverged: dict = field(default_factory=dict)  # (point index, seed) -> step
    state: dict = field(default_factory=dict)  # (point index, seed) -> (State, steps done)
    steps: int | None = None
    data: str = "same"
    speed: float = 20_000.0
    commit: str = "12e65b3aa"
    dirty: bool = False


@dataclass
class Fake:
    """The part of the reader that tables and figures use."""

    record: SweepRecord | None
    rows: dict
    table: pd.DataFrame
    kept: bool = True
    measured: tuple = ()

    def noises(self) -> list:
        return list(self.measured)

    def sweep(self, name: str | None = None) -> SweepRecord:
        if self.record is None or (name and name != self.record.name):
            raise NlqError(f'no sweep "{name}"')
        return self.record

    def evals(self, run_ids: Iterable[str]) -> dict:
        return {run_id: self.rows[run_id] for run_id in run_ids if run_id in self.rows}

    def windows(self, run_id: str, step: int, split: str) -> WindowLosses | None:
        """200 documents of 20 tokens whose losses differ, with the run's loss as their mean; None unless `kept`."""
        loss = {(e.step, e.split): e.loss_nats for e in self.rows.get(run_id, [])}.get((step, split))
        if not self.kept or loss is None or not math.isfinite(loss):
            return None
        tokens = np.full(200, 20)
        own = np.random.default_rng(zlib.crc32(run_id.encode())).normal(0, 0.02, 200)
        sums = tokens * (loss + np.random.default_rng(9).normal(0, 0.4, 200) + own)
        sums += tokens * (loss - sums.sum() / tokens.sum())
        return WindowLosses(sums, tokens, np.arange(200), sums, tokens)

    def steps(self, run_ids: Iterable[str]) -> pd.DataFrame:
        return self.table[self.table.run_id.isin(list(run_ids))]


def lr_points(*rates: float) -> tuple[dict, ...]:
    return tuple({"optim.lr_max": rate} for rate in rates)


ARMS = (
    Arm("baseline", "Baseline"),
    Arm("identity", "W_Q = I", 0.004, -7_077_888),
    Arm("mlp-4.75", "MLP 4.75", 0.0276, 10_616_832),
    Arm("nonlinear-q", "Res. GELU α-λ ⭐", 0.05, 18_432),
)


def make(arms=ARMS, name="wd-lr-grid", steps=300, every=50, rates=(1e-3, 2e-3), splits=("select", "confirm")) -> Fake:
    members, rows, frames = [], {}, []
    for arm in arms:
        for index, point in enumerate(arm.points or lr_points(*rates)):
            for seed in arm.seeds:
                member, evals, frame = _run(arm, index, point, seed, arm.steps or steps, every, splits)
                members.append(member)
                rows[member.run.run_id] = evals
                frames.append(frame)
    record = SweepRecord(name, arms[0].name if arms else "baseline", "2026-01-01T00:00:00Z", tuple(members))
    return Fake(record, rows, pd.concat(frames) if frames else pd.DataFrame())


def confirmed(arms=ARMS, fresh=(7, 8)) -> Fake:
    """Three learning rates tuned with the seeds 0 and 1, and fresh seeds of the best one."""
    source = make([replace(arm, seeds=(0, 1)) for arm in arms], rates=(1e-3, 2e-3, 4e-3))
    more = make([replace(arm, seeds=fresh, points=()) for arm in arms], rates=(2e-3,))
    members = []
    for member in more.record.members:
        run = replace(member.run, run_id=f"fresh-{member.run.run_id}")
        source.rows[run.run_id] = more.rows[member.run.run_id]
        members.append(replace(member, run=run))
    source.record = replace(source.record, members=(*source.record.members, *members))
    return source


def sized(sizes=(1, 2), gains=(0.02,)) -> Fake:
    """The baseline with wider feed-forwards, each a little better, and arms with another query map and these gains."""
    wider = {1: ("a", 0.0276, 10_616_832, 4.75), 2: ("b", 0.037, 14_155_776, 5.0), 3: ("c", 0.09, 56_623_104, 8.0)}
    arms = [Arm(name, name, gain, params) for name, gain, params, _ in (wider[size] for size in sizes)]
    names = ["nonlinear-q", *(f"variant-{i}" for i in range(1, len(gains)))]
    variants = [replace(ARMS[3], name=name, gain=gain) for name, gain in zip(names, gains, strict=True)]
    source = make([ARMS[0], *arms, *variants], rates=(2e-3,))
    ratios = {name: ratio for name, _, _, ratio in wider.values()}

    def shaped(member):
        kind = "residual_mlp" if member.arm in names else "linear"
        mlp = {"kind": "gelu", "ratio": ratios.get(member.arm, 4.0)}
        model = {"layers": 12, "query": {"kind": kind}, "mlp": mlp}
        return replace(member, run=replace(member.run, spec={**member.run.spec, "model": model}))

    source.record = replace(source.record, members=tuple(map(shaped, source.record.members)))
    return source


def _run(arm, index, point, seed, steps, every, splits):
    state, done = arm.state.get((index, seed), (State.COMPLETED, steps))
    lost = arm.diverged.get((index, seed))
    if lost is not None:
        state, done = State.DIVERGED, lost
    run_id = f"{arm.name}-{index}-{seed}"
    at = [s for s in sorted({*range(0, steps + 1, every), steps}) if s <= done]
    evals = [
        EvalPoint(s, split, curve(arm, point, seed, s, steps, split), 4096, f"{arm.data}-{seed}-{s}")
        for s in at
        for split in splits
    ]
    rng = np.random.default_rng([seed, 7])
    x = np.arange(min(done, steps))
    noise = rng.normal(0, 0.04, steps)[: len(x)]
    train = np.array([curve(arm, point, seed, s, steps, "train") for s in x]) + noise
    if lost is not None and len(train):
        train[-1] = math.nan
    frame = pd.DataFrame(
        {"run_id": run_id, "step": x, "loss_nats": train, "grad_norm": 1.0, "lr": 1e-3, "step_ms": 9.0}
    )
    lr = point.get("optim.lr_max", 1e-3)
    spec = {
        "optim": {
            "lr_max": lr,
            "lr_min": point.get("optim.lr_min", lr / 10),
            "weight_decay": point.get("optim.weight_decay", 0.1),
        },
        "train": {"steps": steps, "report_step": steps, "batch_tokens": BATCH_TOKENS},
        "seed": seed,
    }
    provenance = Provenance(
        "host", "cpu", 1, "0.1.0", "2.11.0", "3.12", arm.commit, arm.dirty, f"{arm.commit}-{arm.dirty}"
    )
    run = RunRecord(
        run_id, f"key-{run_id}", state, spec, seed, BASE_PARAMS + arm.extra_params, None,
        6 * (BASE_PARAMS + arm.extra_params), steps, done, None, (arm.speed + 100 * seed) if done else None,
        lost, None, None, 0, "2026-01-01T00:00:00Z", None, None, provenance if done else None,
    )  # fmt: skip
    return Member(arm.name, arm.label, point, run), evals, frame


def curve(arm, point, seed, step, steps, split):
    """Loss in nats: a decay from 5.5 to 2.94, lower by the arm's gain, higher away from the rate 2e-3."""
    lr = point.get("optim.lr_max", 1e-3)
    wd = point.get("optim.weight_decay", 0.1)
    progress = step / steps
    decay = 2.56 * math.exp(-9 * progress**0.7)
    miss = 0.0209 * math.log(lr / 2e-3) ** 2 + 0.05 * abs(wd - 0.1)
    ripple = 0.002 * math.sin(17 * progress + seed) + 0.0015 * math.cos(5 * seed + len(arm.name))
    shift = {"select": 0.0, "confirm": 0.003, "val": 0.0, "train": -0.01}[split]
    return 2.9441 + decay + (miss - arm.gain) * min(1.0, 0.1 + progress) + ripple * min(1, 4 * progress) + shift
