"""Measured paces: what they depend on, and that nothing is measured twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nlq.core.errors import NlqError
from nlq.core.launch import Slot
from nlq.core.spec import ModelSpec, OptimSpec, RunSpec, TrainSpec, defaults_resolved
from nlq.models.build import resolve
from nlq.models.cost import Cost, cost, spread_bytes
from nlq.training import pace
from nlq.training.pace import Pace, Paces

SLOTS = [Slot("cpu:0", "cpu", 1), Slot("cpu:1", "cpu", 1)]


def spec_of(width: int = 16, lr_max: float = 1e-3, batch_tokens: int = 32, **train: object) -> RunSpec:
    model = ModelSpec(layers=1, heads=2, width=width, context=8, vocab=32)
    training = TrainSpec.model_validate({"batch_tokens": batch_tokens, **train})
    return resolve(defaults_resolved(RunSpec(model=model, optim=OptimSpec(lr_max=lr_max), train=training)))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """The specs that were measured, on a machine that counts as quiet."""
    seen: list[RunSpec] = []
    monkeypatch.setattr(pace, "BUSY_SHARE", 1.0)

    def measure(spec: RunSpec, _slots: list[Slot]) -> Pace:
        seen.append(spec)
        return Pace(1.0, 1e-3, 10**8)

    monkeypatch.setattr(pace, "_measure_together", measure)
    return seen


def paces_of(folder: Path, source: str = "s", slots: list[Slot] = SLOTS) -> Paces:
    return Paces(folder / "cache", slots, source, lambda _: None)


def pace_of(paces: Paces, spec: RunSpec) -> Pace:
    return paces.of(spec, cost(spec.model))


def test_a_shape_is_measured_once(tmp_path: Path, measured: list[RunSpec]) -> None:
    first = pace_of(paces_of(tmp_path), spec_of())
    assert pace_of(paces_of(tmp_path), spec_of(lr_max=5e-3, steps=7, eval_every=3)) == first
    assert len(measured) == 1


def test_what_a_sharded_device_saves() -> None:
    assert spread_bytes(Cost(1000, 1000, 0, 0), 2, 4) == 8000, "half of 16 bytes for each parameter"
    assert spread_bytes(Cost(1000, 0, 0, 0), 2, 4) == 0, "an embedding and its gradient are gathered"


def test_sharding_is_no_part_of_what_is_measured(tmp_path: Path, measured: list[RunSpec]) -> None:
    for sharded in (False, True):
        pace_of(paces_of(tmp_path), spec_of(devices=2, sharded=sharded))
    assert len(measured) == 1


@pytest.mark.parametrize("change", ["width", "micro_batch", "precision", "source", "slots"])
def test_what_a_pace_depends_on(tmp_path: Path, measured: list[RunSpec], change: str) -> None:
    pace_of(paces_of(tmp_path), spec_of())
    others = {"width": {"width": 32}, "micro_batch": {"micro_batch": 2}, "precision": {"precision": "bf16"}}
    where = {"source": {"source": "t"}, "slots": {"slots": SLOTS[:1]}}
    pace_of(paces_of(tmp_path, **where.get(change, {})), spec_of(**others.get(change, {})))
    assert len(measured) == 2


def test_a_large_batch_is_measured_in_part(
    tmp_path: Path, measured: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(batch_tokens=8 * 64)
    one = cost(spec.model)
    monkeypatch.setattr(pace, "MEASURE_FLOPS", 4.5 * one.flops_per_token * 8)
    found = pace_of(paces_of(tmp_path), spec)
    assert measured[0].sequences_per_step == 4
    assert found == Pace(16.0, 1e-3, 10**8 + 60 * one.activation_bytes)


class BusyMachine:
    """On which other programs take so much of the processors."""

    share = 0.0

    def __enter__(self) -> "BusyMachine":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_what_a_busy_machine_gave_is_not_kept(
    tmp_path: Path, measured: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "Others", BusyMachine)
    monkeypatch.setattr(pace, "BUSY_SHARE", 0.1)
    monkeypatch.setattr(BusyMachine, "share", 0.4)
    busy = paces_of(tmp_path)
    for _ in range(2):
        pace_of(busy, spec_of())
    assert len(measured) == 1
    assert len(busy.remarks()) == 1
    assert "took 40 % of the processors" in busy.remarks()[0]
    monkeypatch.setattr(BusyMachine, "share", 0.02)
    quiet = paces_of(tmp_path)
    for paces in (quiet, paces_of(tmp_path)):
        pace_of(paces, spec_of())
    assert len(measured) == 2
    assert quiet.remarks() == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"x": "y"}'])
def test_a_damaged_file_is_measured_again(tmp_path: Path, measured: list[RunSpec], text: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "pace.json").write_text(text)
    assert pace_of(paces_of(tmp_path), spec_of()).step_s == 1.0


def test_a_real_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MEASURE_S", 0.02)
    small, large = (pace_of(paces_of(tmp_path), spec_of(width=width, batch_tokens=256)) for width in (16, 256))
    assert 0 < small.step_s < large.step_s
    assert 0 < small.eval_token_s < large.eval_token_s
    assert small.memory_bytes > 10**7


def test_a_process_that_ends_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(_spec: RunSpec, _slot: Slot) -> None:
        os._exit(9)

    with pytest.raises(NlqError, match="could not be measured: its process ended"):
        pace.in_processes(killed, spec_of(), SLOTS)


COMPUTES_ITSELF = """
import sys
from pathlib import Path
from nlq.commands.dry_run import dry_run
from nlq.core.errors import NlqError
from nlq.core.launch import Slot
import nlq.commands.dry_run as look
import psutil
look.HEAVY_FLOPS = 1e6
before = psutil.Process().num_threads()
dry_run(Path(sys.argv[1]), Path(sys.argv[2]), [Slot("cpu:0", "cpu", 2)], as_json=True)
assert psutil.Process().num_threads() <= before
"""


def test_a_dry_run_itself_never_computes(tmp_path: Path) -> None:
    """Neither for shapes that are measured nor for those that are too large: its forks would wait for ever."""
    spec = tmp_path / "s.yaml"
    (tmp_path / "t.txt").write_text("some words of text\n" * 4000)
    spec.write_text(
        "{name: s, baseline: small, base: {data: {corpus: text, path: t.txt}, optim: {warmup_steps: 0},"
        " model: {layers: 1, context: 16}, train: {steps: 2, batch_tokens: 64}},"
        " arms: {large: {model.width: 64}, small: {model.width: 4}}}"
    )
    done = subprocess.run(
        [sys.executable, "-c", COMPUTES_ITSELF, str(spec), str(tmp_path / "cache")],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "2"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
