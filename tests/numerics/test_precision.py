"""bfloat16 products on the quickstart: further from float32 than nothing, nearer than another seed."""

import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch

from nlq.core.document import read
from nlq.core.run import EvalRow, StepRow
from nlq.core.spec import RunSpec, defaults_resolved
from nlq.core.sweep import expand
from nlq.data.plan import WindowsData
from nlq.models.build import build, initialise, resolve
from nlq.training.loop import train

STEPS, SEEDS = 80, 3
SPEC = Path(__file__).parents[2] / "specs" / "quickstart.yaml"


class LastLoss:
    """A sink that keeps the latest evaluation."""

    loss_nats = np.nan

    def step(self, row: StepRow) -> None:
        """Not kept."""

    def evaluation(self, row: EvalRow) -> None:
        if row.split == "select":
            self.loss_nats = row.loss_nats

    def flush(self) -> None:
        """Nothing to make safe."""


def quickstart(precision: str, seed: int) -> RunSpec:
    runs = expand(read(SPEC), lambda spec: resolve(defaults_resolved(spec.resolved(model={"vocab": 256})))).runs
    spec = next(run.spec for run in runs if (run.arm, run.spec.seed) == ("baseline", 0))
    short = {"precision": precision, "steps": STEPS, "eval_every": STEPS, "report_step": STEPS}
    return spec.resolved(train=short).model_copy(update={"seed": seed})


def final_loss(precision: str, seed: int) -> float:
    spec, sink = quickstart(precision, seed), LastLoss()
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("[a-d]*.py")))
    tokens = np.frombuffer(text, dtype=np.uint8)
    held_out, shape = len(tokens) // 10, spec.model
    data = WindowsData(
        tokens[held_out:], tokens[:held_out], tokens[:held_out],
        context=shape.context, rows=spec.sequences_per_step, seed=seed, eval_windows=256,
    )  # fmt: skip
    model = build(shape)
    initialise(model, seed)
    train(model, data, sink, spec, torch.device("cpu"))
    return float(sink.loss_nats)


@pytest.fixture(scope="module")
def losses() -> dict[str, np.ndarray]:
    """Final losses of each seed, by precision."""
    return {p: np.array([final_loss(p, seed) for seed in range(SEEDS)]) for p in ("float32", "bf16")}


def test_bf16_is_within_the_noise_of_seeds(losses: dict[str, np.ndarray]) -> None:
    difference, noise = losses["bf16"] - losses["float32"], losses["float32"].std(ddof=1)
    assert 0 < np.abs(difference).max() < noise
    assert abs(difference.mean()) < noise / 2
