"""`precision: auto`: bfloat16 only where it is clearly quicker, and a decision that lasts."""

from dataclasses import replace
from pathlib import Path

import pytest

from nlq.core.launch import Slot
from nlq.core.spec import ModelSpec, OptimSpec, RunSpec, TrainSpec, defaults_resolved
from nlq.models.build import resolve
from nlq.training import precision
from nlq.training.precision import quicker_precision

SLOT = Slot("cpu:0", "cpu", 1)


def spec_of(width: int = 16, batch_tokens: int = 32, **others: object) -> RunSpec:
    model = ModelSpec(layers=1, heads=2, width=width, context=8, vocab=32)
    train = TrainSpec.model_validate({"batch_tokens": batch_tokens, "precision": "auto", **others})
    return resolve(defaults_resolved(RunSpec(model=model, optim=OptimSpec(), train=train)))


@pytest.fixture
def ratios(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the next measurements find, bfloat16 over float32."""
    coming: list[float] = []
    monkeypatch.setattr(precision, "in_processes", lambda _measure, _spec, slots: [coming.pop(0)] * len(slots))
    return coming


def choose(folder: Path, spec: RunSpec, slot: Slot = SLOT) -> str:
    return quicker_precision(spec, folder / "cache", [slot], lambda _: None)


@pytest.mark.parametrize(("ratio", "chosen"), [(0.5, "bf16"), (0.94, "bf16"), (0.97, "float32"), (1.4, "float32")])
def test_a_tie_is_float32(tmp_path: Path, ratios: list[float], ratio: float, chosen: str) -> None:
    ratios.append(ratio)
    assert choose(tmp_path, spec_of()) == chosen


def test_a_decision_lasts(tmp_path: Path, ratios: list[float]) -> None:
    """Also when paces are measured anew, and for runs that differ in what their shape does not."""
    ratios += [0.5, 2.0]
    assert choose(tmp_path, spec_of()) == "bf16"
    (tmp_path / "cache" / "pace.json").unlink(missing_ok=True)
    assert choose(tmp_path, spec_of(steps=7, eval_every=3)) == "bf16"
    assert ratios == [2.0]


@pytest.mark.parametrize("change", ["shape", "batch", "threads", "device", "torch"])
def test_what_a_decision_depends_on(
    tmp_path: Path, ratios: list[float], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ratios += [0.5, 2.0]
    assert choose(tmp_path, spec_of()) == "bf16"
    if change == "torch":
        monkeypatch.setattr(precision.torch, "__version__", "0.0")
    spec = {"shape": spec_of(width=32), "batch": spec_of(batch_tokens=64)}.get(change, spec_of())
    slot = {"threads": replace(SLOT, threads=2), "device": replace(SLOT, device="cuda:0")}.get(change, SLOT)
    assert choose(tmp_path, spec, slot) == "float32"


def test_a_damaged_decision_is_made_again(tmp_path: Path, ratios: list[float]) -> None:
    ratios += [0.5, 0.5]
    choose(tmp_path, spec_of())
    path = tmp_path / "cache" / "precision.json"
    path.write_text(path.read_text().replace("bf16", "fp8"))
    assert choose(tmp_path, spec_of()) == "bf16"
    assert not ratios


def test_a_real_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "MEASURE_S", 0.02)
    assert choose(tmp_path, spec_of()) in ("bf16", "float32")
