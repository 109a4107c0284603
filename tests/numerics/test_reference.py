"""The benchmark's reference computes what nlq computes: the proof that their ratio compares the same mathematics."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nlq.bench import reference as module
from nlq.bench.reference import Gpt, Reference, tune
from nlq.bench.sizes import Size, spec_of
from nlq.data.plan import Batch
from nlq.models.build import build, initialise
from nlq.models.transformer import Transformer
from nlq.training.engine import Engine

CPU = torch.device("cpu")
SIZE = Size("smallest", 2, 2, 32, 24, 3, 70)
STEPS = 6


def batch_of(step: int) -> Batch:
    tokens = np.random.default_rng(step).integers(0, SIZE.vocab, (SIZE.rows, SIZE.context + 1))
    return Batch(np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:]))


def reference_of(folder: Path, *, fused: bool = False) -> Reference:
    np.random.default_rng(0).integers(0, SIZE.vocab, 5000).astype(np.uint16).tofile(folder / "tokens.bin")
    return Reference(SIZE, folder / "tokens.bin", spec_of(SIZE, "float32").optim, CPU, fused=fused)


@torch.no_grad()
def take_weights(model: Gpt, source: Transformer) -> None:
    model.embedding.weight.copy_(source.embedding.weight)
    model.positions.weight.copy_(source.positions.table.weight)
    model.norm.weight.copy_(source.norm.weight)
    for own, other in zip(model.blocks, source.blocks, strict=True):
        projections = [other.attention.query, other.attention.key, other.attention.value]
        own.qkv.weight.copy_(torch.cat([one.weight for one in projections]))
        own.output.weight.copy_(other.attention.output.weight)
        own.up.weight.copy_(other.mlp.up.weight)
        own.down.weight.copy_(other.mlp.down.weight)


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
def test_losses_are_nlqs(tmp_path: Path, fused: bool) -> None:
    spec = spec_of(SIZE, "float32")
    source = build(spec.model)
    initialise(source, 3)
    ours = reference_of(tmp_path, fused=fused)
    take_weights(ours.model, source)
    engine = Engine(source, spec, CPU)
    for step in range(STEPS):
        batch = batch_of(step)
        theirs = float(engine.update(batch, step).loss)
        found = float(ours.update(*(torch.from_numpy(tokens) for tokens in batch), step))
        assert found == pytest.approx(theirs, rel=1e-5), step


def test_both_draw_weights_of_the_same_size(tmp_path: Path) -> None:
    ours, source = reference_of(tmp_path).model, build(spec_of(SIZE, "float32").model)
    initialise(source, 3)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in source.parameters())
    for mine, other in (("qkv", "attention.key"), ("output", "attention.output"), ("down", "mlp.down")):
        own, theirs = ours.blocks[0].get_submodule(mine).weight, source.blocks[0].get_submodule(other).weight
        assert float(own.detach().std()) == pytest.approx(float(theirs.detach().std()), rel=0.1)


def test_a_batch_is_text_and_what_follows(tmp_path: Path) -> None:
    reference = reference_of(tmp_path)
    x_BT, y_BT = reference.batch()
    assert x_BT.shape == y_BT.shape == (SIZE.rows, SIZE.context)
    assert torch.equal(x_BT[:, 1:], y_BT[:, :-1])


def test_a_step_learns(tmp_path: Path) -> None:
    reference, batch = reference_of(tmp_path), [torch.from_numpy(tokens) for tokens in batch_of(0)]
    losses = [float(reference.update(*batch, step)) for step in range(20)]
    assert losses[-1] < losses[0]


def test_tuning_says_what_it_chose_and_what_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRY_S", 0.0)
    assert tune(reference_of(tmp_path), compiled=False).endswith("fused AdamW, not compiled")
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    reference = reference_of(tmp_path)
    assert "no C++ compiler here (install g++)" in tune(reference, compiled=True)
    assert reference.loss is reference.model


@pytest.mark.parametrize(
    ("compiled", "words"),
    [
        (lambda x, y: 1 / 0, "ZeroDivisionError in torch.compile"),
        (lambda x, y: torch.full((), torch.nan, requires_grad=True), "the compiled loss is nan"),
        (lambda x, y: torch.full((), 9.0, requires_grad=True), "the compiled loss is 9.0000, the eager one 4.2"),
    ],
    ids=["dies", "not a number", "another number"],
)
def test_compiled_code_that_is_wrong_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: object, words: str
) -> None:
    monkeypatch.setattr(module, "TRY_S", 0.0)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: compiled)
    reference = reference_of(tmp_path)
    assert words in tune(reference, compiled=True)
    assert reference.loss is reference.model
