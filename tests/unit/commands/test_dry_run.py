"""What a dry run makes of a measured pace: starts, evaluations, checkpoints, compiled code, memory."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nlq.commands import dry_run as module
from nlq.commands.dry_run import Estimate
from nlq.core.launch import Slot
from nlq.core.spec import ModelSpec, OptimSpec, RunSpec, TrainSpec, defaults_resolved
from nlq.core.sweep import PlannedRun
from nlq.models.build import resolve
from nlq.models.cost import cost, training_bytes
from nlq.training.pace import Pace

PACE = Pace(0.1, 1e-3, 10**9)


def estimate(device: str = "cpu", **train: Any) -> Estimate:
    """Of a run of 100 steps and one evaluation of 16 tokens."""
    model = ModelSpec(layers=1, heads=2, width=16, context=8, vocab=32)
    settings = {"steps": 100, "batch_tokens": 32, "eval_every": 100, "eval_windows": 2, **train}
    run_spec = RunSpec(model=model, optim=OptimSpec(), train=TrainSpec.model_validate(settings))
    spec = resolve(defaults_resolved(run_spec))
    paces = SimpleNamespace(of=lambda *_: PACE, slots=[Slot("s", device, 1)])
    run = cast(PlannedRun, SimpleNamespace(spec=spec))
    return module._estimate(run, cost(spec.model), cast(Any, paces))


def test_time_is_start_steps_and_evaluations() -> None:
    found = estimate()
    evaluations = len(found.run.spec.eval_steps())
    assert found.seconds == pytest.approx(module.START_S + 100 * 0.1 + evaluations * 16 * 1e-3)
    assert found.memory_bytes == PACE.memory_bytes


def test_a_run_that_cannot_be_forked_takes_longer_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    warm = estimate().seconds
    monkeypatch.setattr(module, "FORKS_SAFELY", False)
    assert estimate().seconds == pytest.approx(warm + module.COLD_START_S - module.START_S)


def test_checkpoints_take_time() -> None:
    without, ten, each, kept = (
        estimate(**train).seconds
        for train in ({}, {"checkpoint_steps": 10}, {"checkpoint_minutes": 0}, {"keep_steps": (50,)})
    )
    one = kept - without
    assert one > 0
    assert (ten - without, each - without) == (pytest.approx(10 * one), pytest.approx(100 * one))


@pytest.mark.parametrize(("device", "more"), [("cpu", module.COMPILER_BYTES), ("cuda:0", 0)])
def test_compiled_runs_are_said_and_need_their_compiler(device: str, more: int) -> None:
    found = estimate(device, compile="always")
    assert found.is_compiled
    assert found.memory_bytes == PACE.memory_bytes + more
    assert "1 run will be compiled" in " ".join(module._totals([found], [Slot("s", device, 1)]))
    assert "compiled" not in " ".join(module._totals([estimate()], [Slot("s", device, 1)]))


def test_a_shape_too_large_to_try_needs_its_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAVY_FLOPS", 1)
    monkeypatch.setattr(module, "in_processes", lambda *_: [(1e9, 10**8)])
    found = estimate()
    assert found.is_rough
    assert found.memory_bytes == 10**8 + training_bytes(found.cost, 4)
