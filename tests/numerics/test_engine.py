"""Whatever makes a step quicker leaves its numbers as they are."""

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from nlq.core.spec import ModelSpec, OptimSpec, RunSpec, TrainSpec, defaults_resolved
from nlq.data.plan import Batch
from nlq.models.attention._blocks import attend_blocks
from nlq.models.attention.softmax import attend_math
from nlq.models.build import build, initialise, resolve
from nlq.models.transformer import token_losses
from nlq.training import head
from nlq.training.engine import Engine

CPU = torch.device("cpu")
SYSTEMS = ("baseline", "identity", "nonlinear_q", "residual_linear", "mlp_w")


def spec_of(variant: str = "baseline", precision: str = "float64", **changes: object) -> RunSpec:
    model = {"variant": variant, "layers": 2, "heads": 2, "width": 16, "context": 12, "vocab": 50}
    train = {"batch_tokens": 8 * int(str(changes.get("context", 12))), "precision": precision}
    model, train = ({k: changes.pop(k, v) for k, v in group.items()} for group in (model, train))
    extra = {k: changes.pop(k) for k in ("tied",) if k in changes}
    spec = RunSpec(
        model=ModelSpec.model_validate(model | extra),
        optim=OptimSpec(lr_max=1e-2, warmup_steps=2),
        train=TrainSpec.model_validate(train | changes),
    )
    return resolve(defaults_resolved(spec))


def engine_of(spec: RunSpec) -> Engine:
    model = build(spec.model)
    initialise(model, 1)
    return Engine(model, spec, CPU)


def batch_of(spec: RunSpec, step: int) -> Batch:
    rows, context = spec.sequences_per_step, spec.model.context
    tokens = np.random.default_rng(step).integers(0, spec.model.vocab or 0, (rows, context + 1))
    return Batch(np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:]))


def curve(engine: Engine, steps: int = 6) -> np.ndarray:
    """Losses and gradient norms [steps, 2]."""
    updates = [engine.update(batch_of(engine.spec, step), step) for step in range(steps)]
    return np.array([[float(u.loss), float(u.grad_norm)] for u in updates])


def plain_gradients(spec: RunSpec) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of the first batch by the model's own forward pass and autograd alone."""
    model = build(spec.model).double()
    initialise(model, 1)
    x_BT, y_BT = (torch.from_numpy(tokens) for tokens in batch_of(spec, 0))
    loss = token_losses(model, x_BT, y_BT).mean()
    loss.backward()
    return float(loss.detach()), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("variant", SYSTEMS)
def test_gradients_are_autograds(variant: str, tied: bool) -> None:
    spec = spec_of(variant, tied=tied)
    engine = engine_of(spec)
    loss = float(engine._accumulate(batch_of(spec, 0))) / spec.train.batch_tokens
    expected_loss, expected = plain_gradients(spec)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    for name, master in engine.masters.items():
        torch.testing.assert_close(master.grad / spec.train.batch_tokens, expected[name], rtol=1e-9, atol=1e-13)


COMPILED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from test_engine import CPU, Engine, build, curve, engine_of, initialise, spec_of
for variant, precision in (("nonlinear_q", "float64"), ("baseline", "bf16")):
    written, compiled = (spec_of(variant, precision, layers=1, compile=when) for when in ("never", "always"))
    model, told = build(compiled.model), []
    initialise(model, 1)
    engine = Engine(model, compiled, CPU, told.append)
    curves = [curve(one, 4).tolist() for one in (engine_of(written), engine)]
    print(json.dumps([*curves, told, engine._hidden != engine.model.hidden]))
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_compiled_code_gives_the_numbers_of_the_code_as_written() -> None:
    """In a process of its own: the compiler cannot look through the checks of shapes that tests put around models."""
    found = subprocess.run(
        [sys.executable, "-c", COMPILED, str(Path(__file__).parent)], capture_output=True, text=True, check=True
    )
    for line, rtol in zip(found.stdout.splitlines(), (1e-9, 5e-3), strict=True):
        written, compiled, told, is_used = json.loads(line)
        assert (told, is_used) == ([], True)
        np.testing.assert_allclose(compiled, written, rtol=rtol)


def test_compiled_code_that_gives_other_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    spec = spec_of(compile="always")
    model = build(spec.model)
    initialise(model, 1)
    monkeypatch.setattr(torch, "compile", lambda hidden, **_: lambda x: hidden(x) * 1.001)
    curve_of_fallback = curve(Engine(model, spec, CPU, told.append))
    assert len(told) == 1
    assert np.array_equal(curve_of_fallback, curve(engine_of(spec_of(compile="never"))))


def test_without_a_compiler_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no C++ compiler\nmore")

    told: list[str] = []
    spec = spec_of(compile="always")
    model = build(spec.model)
    initialise(model, 1)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    curve(Engine(model, spec, CPU, told.append), 2)
    assert told == ["not compiled: no C++ compiler"]


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_micro_batches_change_nothing(micro_batch: int) -> None:
    np.testing.assert_allclose(
        curve(engine_of(spec_of(micro_batch=micro_batch))), curve(engine_of(spec_of())), rtol=1e-9
    )


@pytest.mark.parametrize(("precision", "rtol"), [("float64", 1e-9), ("bf16", 1e-3)])
def test_chunks_of_the_head_change_nothing(monkeypatch: pytest.MonkeyPatch, precision: str, rtol: float) -> None:
    whole = curve(engine_of(spec_of(precision=precision)))
    monkeypatch.setattr(head, "CHUNK_LOGITS", 50 * 7)
    monkeypatch.setattr(head, "CACHED_LOGITS", 50 * 3)
    monkeypatch.setattr(head, "SUMMED", 16 * 3)
    np.testing.assert_allclose(curve(engine_of(spec_of(precision=precision))), whole, rtol=rtol)


@pytest.mark.parametrize("precision", ["float64", "float32", "bf16"])
def test_the_same_bits_twice(precision: str) -> None:
    assert np.array_equal(
        curve(engine_of(spec_of(precision=precision))), curve(engine_of(spec_of(precision=precision)))
    )


@pytest.mark.parametrize(("variant", "tied"), [*((variant, True) for variant in SYSTEMS), ("baseline", False)])
def test_bf16_stays_near_float32(variant: str, tied: bool) -> None:
    specs = [spec_of(variant, precision, context=160, tied=tied) for precision in ("bf16", "float32")]
    low, high = (curve(engine_of(spec), 20) for spec in specs)
    np.testing.assert_allclose(low[:, 0], high[:, 0], rtol=5e-3)
    np.testing.assert_allclose(low[:5, 1], high[:5, 1], rtol=3e-2)


def test_bf16_keeps_masters_and_reads_shadows() -> None:
    engine = engine_of(spec_of(precision="bf16"))
    curve(engine, 3)
    assert {master.dtype for master in engine.masters.values()} == {torch.float32}
    for name, leaf in engine.model.named_parameters():
        is_matrix = leaf.dim() == 2 and name not in ("embedding.weight", "positions.table.weight")
        assert leaf.dtype == (torch.bfloat16 if is_matrix else torch.float32), name
        assert torch.equal(leaf, engine.masters[name].to(leaf.dtype)), name


def test_micro_batches_in_bf16_are_summed_in_float32() -> None:
    whole, ones = (curve(engine_of(spec_of(precision="bf16", micro_batch=size)), 1) for size in (8, 1))
    np.testing.assert_allclose(ones[:, 1], whole[:, 1], rtol=5e-3)


@pytest.mark.parametrize("precision", ["float64", "float32", "bf16"])
def test_a_gradient_that_is_not_finite_moves_nothing(precision: str) -> None:
    engine = engine_of(spec_of(precision=precision))
    curve(engine, 2)
    before = {name: value.clone() for name, value in engine.tensors().items()}
    engine.model.norm.weight.data[0], kept = torch.nan, engine.model.norm.weight.data[0].clone()
    assert not np.isfinite(float(engine.update(batch_of(engine.spec, 2), 2).loss))
    engine.model.norm.weight.data[0] = kept
    engine.update(batch_of(engine.spec, 3), 3)
    for name, value in engine.tensors().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(("context", "heads", "kv_heads"), [(128, 4, 4), (300, 4, 2), (513, 2, 1)])
def test_attention_in_blocks_is_attention(context: int, heads: int, kv_heads: int) -> None:
    draw = torch.Generator().manual_seed(0)
    q, k, v, g = (
        torch.randn(2, h, context, 8, dtype=torch.float64, generator=draw) for h in (heads, kv_heads, kv_heads, heads)
    )
    inputs = [t.requires_grad_() for t in (q, k, v)]
    blocks, math = (attend(*inputs, 0.3) for attend in (attend_blocks, attend_math))
    torch.testing.assert_close(blocks, math, rtol=1e-12, atol=1e-14)
    for ours, theirs in zip(*(torch.autograd.grad((out * g).sum(), inputs) for out in (blocks, math)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


def test_evaluation_is_the_models_own_loss() -> None:
    engine = engine_of(spec_of())
    x_BT, y_BT = (torch.from_numpy(tokens) for tokens in batch_of(engine.spec, 0))
    torch.testing.assert_close(
        engine.token_losses(x_BT, y_BT), token_losses(engine.model, x_BT, y_BT), rtol=1e-12, atol=0
    )


def test_training_goes_down() -> None:
    engine = engine_of(spec_of(precision="bf16"))
    batch = batch_of(engine.spec, 0)
    losses = [float(engine.update(batch, step).loss) for step in range(12)]
    assert all(b < a for a, b in pairwise(losses[2:]))
