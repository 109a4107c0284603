"""A run that is stopped anywhere and resumed equals the uninterrupted one, bit for bit, in every row."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlq.core.run import EvalRow, Outcome, StepRow
from nlq.core.spec import ModelSpec, OptimSpec, RunSpec, TrainSpec, defaults_resolved
from nlq.data.plan import Batch, WindowsData
from nlq.models.build import build, initialise, resolve
from nlq.training import loop
from nlq.training.checkpoint import Checkpoints, TrainingState
from nlq.training.engine import Engine, Update
from nlq.training.guard import Guard
from nlq.training.loop import Run, proceed

STEPS = 20


class Rows:
    """A sink that keeps everything, by step."""

    def __init__(self) -> None:
        self.steps: dict[int, tuple[float, ...]] = {}
        self.evals: dict[tuple[int, str], tuple[Any, ...]] = {}
        self.flushed = 0

    def step(self, row: StepRow) -> None:
        self.steps[row.step] = row[:4]

    def evaluation(self, row: EvalRow) -> None:
        self.evals[row.step, row.split] = (row.loss_nats, row.data_hash, row.windows.window_sums.tobytes())

    def flush(self) -> None:
        self.flushed = len(self.steps)


class StopAt:
    """Asks for an end before one step, and for a checkpoint before others."""

    def __init__(self, step: int | None, rows: Rows) -> None:
        self.step, self.rows = step, rows

    def stop(self) -> bool:
        return self.step is not None and len(self.rows.steps) >= self.step

    def checkpoint(self) -> bool:
        return False


def spec_of(**train: object) -> RunSpec:
    shape = {"layers": 1, "heads": 2, "width": 16, "context": 8, "vocab": 32, "variant": "nonlinear_q"}
    settings_ = {"steps": STEPS, "batch_tokens": 32, "eval_every": 4, "eval_windows": 6, **train}
    spec = RunSpec(
        model=ModelSpec.model_validate(shape),
        optim=OptimSpec(warmup_steps=3),
        train=TrainSpec.model_validate(settings_),
    )
    return resolve(defaults_resolved(spec))


def run_of(spec: RunSpec, rows: Rows, seed: int = 0) -> Run:
    tokens = np.random.default_rng(0).integers(0, 32, 3000)
    data = WindowsData(tokens, tokens[:500], tokens[500:1000], context=8, rows=4, seed=seed, eval_windows=6)
    model = build(spec.model)
    initialise(model, seed)
    return Run(Engine(model, spec, torch.device("cpu")), data, rows, spec)


def keeper_of(folder: Path, spec: RunSpec, told: list[str] | None = None) -> Checkpoints:
    return Checkpoints(folder, spec, 1, (told if told is not None else []).append)


def go_on(folder: Path, spec: RunSpec, rows: Rows, stop: int | None = None, told: list[str] | None = None) -> Outcome:
    """One attempt: a fresh model, resumed from what the folder holds."""
    run, keeper = run_of(spec, rows), keeper_of(folder, spec, told)
    state = keeper.restore(run.engine, lambda _: True)
    rows.steps = {k: v for k, v in rows.steps.items() if k < state.step}
    rows.evals = {k: v for k, v in rows.evals.items() if k[0] < state.step}
    return proceed(run, state, keeper, StopAt(stop, rows))


@pytest.fixture(scope="module")
def uninterrupted() -> Rows:
    rows = Rows()
    assert proceed(run_of(spec_of(), rows), TrainingState()) == Outcome(STEPS, None, rows.evals[STEPS, "select"][1])
    return rows


@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(1, STEPS - 1), max_size=3, unique=True).map(sorted))
def test_stopped_anywhere_and_resumed(
    tmp_path_factory: pytest.TempPathFactory, uninterrupted: Rows, stops: list[int]
) -> None:
    folder, rows = tmp_path_factory.mktemp("run"), Rows()
    for stop in stops:
        ended = go_on(folder, spec_of(), rows, stop)
        assert (ended.interrupted, ended.steps_done) == (True, stop)
    assert not go_on(folder, spec_of(), rows).interrupted
    assert rows.steps == uninterrupted.steps
    assert rows.evals == uninterrupted.evals


@pytest.mark.parametrize("killed_at", [1, 5, 9, 16])
def test_killed_between_checkpoints(tmp_path: Path, uninterrupted: Rows, killed_at: int) -> None:
    spec, rows = spec_of(checkpoint_steps=4), Rows()

    class KilledError(Exception):
        pass

    class Killer(StopAt):
        def stop(self) -> bool:
            if super().stop():
                raise KilledError
            return False

    run, keeper = run_of(spec, rows), keeper_of(tmp_path, spec)
    with pytest.raises(KilledError):
        proceed(run, TrainingState(), keeper, Killer(killed_at, rows))
    assert keeper.steps()[:1] == ([4 * ((killed_at - 1) // 4)] if killed_at > 4 else [])
    go_on(tmp_path, spec, rows)
    assert rows.steps == uninterrupted.steps
    assert rows.evals == uninterrupted.evals


def test_rows_are_made_safe_before_a_checkpoint_relies_on_them(tmp_path: Path) -> None:
    rows = Rows()
    go_on(tmp_path, spec_of(), rows, stop=7)
    assert rows.flushed == 7


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "torn":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "one bit":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["torn", "empty", "one bit", "gone"])
@pytest.mark.parametrize("kind", ["safetensors", "json"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_used(
    tmp_path: Path, uninterrupted: Rows, kind: str, how: str
) -> None:
    spec, rows, told = spec_of(checkpoint_steps=4), Rows(), []
    go_on(tmp_path, spec, rows, stop=9)
    newest = max(tmp_path.glob(f"*.{kind}"))
    damage(newest, how)
    keeper, run = keeper_of(tmp_path, spec, told), run_of(spec, Rows())
    assert keeper.restore(run.engine, lambda _: True).step == 8
    assert bool(told) == (how != "gone" or kind != "json")
    go_on(tmp_path, spec, rows)
    assert rows.steps == uninterrupted.steps


def test_a_planted_half_checkpoint_is_not_believed(tmp_path: Path, uninterrupted: Rows) -> None:
    spec, rows = spec_of(), Rows()
    go_on(tmp_path, spec, rows, stop=5)
    (tmp_path / f"{12:09d}.safetensors").write_bytes((tmp_path / f"{5:09d}.safetensors").read_bytes())
    outer = json.loads((tmp_path / f"{5:09d}.json").read_text())
    outer["description"]["state"]["step"] = 12
    (tmp_path / f"{12:09d}.json").write_text(json.dumps(outer))
    go_on(tmp_path, spec, rows)
    assert rows.steps == uninterrupted.steps


def test_a_checkpoint_of_another_run_is_not_used(tmp_path: Path) -> None:
    go_on(tmp_path, spec_of(), Rows(), stop=5)
    other = spec_of(eval_every=5)
    run = run_of(other, Rows())
    assert keeper_of(tmp_path, other).restore(run.engine, lambda _: True).step == 0


def test_a_checkpoint_whose_rows_are_missing_is_passed_over(tmp_path: Path) -> None:
    spec = spec_of(checkpoint_steps=4)
    go_on(tmp_path, spec, Rows(), stop=9)
    run = run_of(spec, Rows())
    assert keeper_of(tmp_path, spec).restore(run.engine, lambda step: step < 9).step == 8


def test_the_last_two_and_milestones_are_kept(tmp_path: Path) -> None:
    spec = spec_of(checkpoint_steps=2, keep_steps=[3, STEPS])
    rows, keeper = Rows(), keeper_of(tmp_path, spec)
    proceed(run_of(spec, rows), TrainingState(), keeper)
    assert keeper.steps() == [20, 18, 16, 3]
    keeper.finish()
    assert keeper.steps() == [20, 3]
    assert not list(tmp_path.glob("*.part"))


def test_no_room_leaves_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, rows = spec_of(checkpoint_steps=4), Rows()
    go_on(tmp_path, spec, rows, stop=6)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nlq.training.checkpoint.save_file", full)
    with pytest.raises(OSError, match="No space"):
        go_on(tmp_path, spec, rows)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_loss_that_is_not_finite_leaves_the_weights_alone(tmp_path: Path) -> None:
    run = run_of(spec_of(), Rows())
    before = [p.detach().clone() for p in run.engine.model.parameters()]
    with torch.no_grad():
        run.engine.model.norm.weight[0] = float("nan")
    before[[n for n, _ in run.engine.model.named_parameters()].index("norm.weight")][0] = float("nan")
    keeper = keeper_of(tmp_path, run.spec)
    assert proceed(run, TrainingState(), keeper).diverged_step == 0
    for kept, now in zip(before, run.engine.model.parameters(), strict=True):
        assert torch.equal(torch.nan_to_num(kept), torch.nan_to_num(now))
    assert keeper.steps() == []


@pytest.mark.parametrize(
    ("losses", "changes", "expected"),
    [
        ([3.0] * 400, {}, None),
        ([3.0, float("nan")], {}, 1),
        ([3.0, float("-inf")], {}, 1),
        ([2.0] * 50 + [3.4] * 300, {}, 50 + 24 + 199),
        ([2.0] * 50 + [2.9] * 300, {}, None),
        ([2.0] * 50 + [3.4] * 300, {"guard_rise_nats": 2.0}, None),
        ([2.0] * 50 + [2.9] * 300, {"guard_rise_nats": 0.5, "guard_steps": 10}, 50 + 15 + 9),
        ([4.0] * 400, {}, 3 + 199),
        ([4.0] * 400, {"guard_guessing": False}, None),
        ([3.4] * 400, {"guard_steps": 1}, None),
    ],
)
def test_the_guard_stops_where_training_is_gone(
    losses: list[float], changes: dict[str, Any], expected: int | None
) -> None:
    """Vocabulary 32: guessing costs 3.466 nats. The smoothed loss of [2]*50 + [3.4]… is above 3 after 25 steps."""
    guard, spec = Guard(), spec_of(**changes)
    stopped = next((step for step, loss in enumerate(losses) if guard.gone(step, loss, spec)), None)
    assert stopped == expected


def test_numbers_that_are_read_together_are_the_same(
    tmp_path: Path, uninterrupted: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, which is not waited for at each step: also when stopped between two readings."""
    monkeypatch.setitem(loop.READ_EVERY, "cpu", 5)
    rows = Rows()
    assert go_on(tmp_path, spec_of(), rows, stop=8).interrupted
    assert not go_on(tmp_path, spec_of(), rows).interrupted
    assert (rows.steps, rows.evals) == (uninterrupted.steps, uninterrupted.evals)


def test_training_that_is_gone_ends_at_the_right_step_when_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loop.READ_EVERY, "cpu", 5)
    spec = spec_of(eval_every=100)
    run = run_of(spec, Rows())
    broken = run.engine.update

    def update(batch: Batch, step: int) -> Update:
        if step == 6:
            with torch.no_grad():
                run.engine.model.norm.weight[0] = float("nan")
        return broken(batch, step)

    monkeypatch.setattr(run.engine, "update", update)
    ended = proceed(run, TrainingState())
    assert (ended.steps_done, ended.diverged_step) == (6, 6)
    assert max(run.sink.steps) == 6
