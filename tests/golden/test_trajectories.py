"""Training curves of the paper's own public code, reproduced number by number.

Each trajectory says everything: weights from the CRC-32 of their names, tokens from a stated stream, batches from
torch.randint. `--golden FILE` adds trajectories of the same form.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nlq.core.run import EvalRow, StepRow
from nlq.core.spec import DataSpec, ModelSpec, OptimSpec, RunSpec, TrainSpec, defaults_resolved
from nlq.data.plan import PaperData
from nlq.models.build import build, resolve
from nlq.models.cost import cost
from nlq.models.transformer import Transformer
from nlq.training.loop import train

VARIANTS = {
    "original": "baseline",
    "identity": "identity",
    "residual": "residual_linear",
    "residual_gelu": "nonlinear_q",
}
LAYER_NAMES = {
    "ln_1": "norm_attention.weight",
    "ln_2": "norm_mlp.weight",
    "attn.k": "attention.key.weight",
    "attn.v": "attention.value.weight",
    "attn.o": "attention.output.weight",
    "query.norm_in": "attention.query.norm_in.weight",
    "query.down": "attention.query.down.weight",
    "query.up": "attention.query.up.weight",
    "query.norm_out": "attention.query.norm_out.weight",
    "mlp.up": "mlp.up.weight",
    "mlp.down": "mlp.down.weight",
}
GAINS = ("ln_1", "ln_2", "ln_f", "norm_in", "norm_out")


class Rows:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.steps: list[StepRow] = []
        self.evals: list[EvalRow] = []

    def step(self, row: StepRow) -> None:
        self.steps.append(row)

    def evaluation(self, row: EvalRow) -> None:
        self.evals.append(row)

    def flush(self) -> None:
        """Nothing to make safe."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden" in metafunc.fixturenames:
        files = [Path(__file__).with_name("trajectories.json"), *map(Path, metafunc.config.getoption("--golden"))]
        cases = [case for file in files for case in json.loads(file.read_text())]
        names = [f"{i}-{case['query_mode']}-mlp{case['config']['mlp_hidden']}" for i, case in enumerate(cases)]
        metafunc.parametrize("golden", cases, ids=names)


def spec_of(golden: dict[str, Any], precision: str) -> RunSpec:
    c = golden["config"]
    rows = c["micro_batch"] * c["accumulation"]
    model = ModelSpec(
        variant=VARIANTS[golden["query_mode"]],
        layers=c["layers"],
        heads=c["heads"],
        width=c["width"],
        context=c["context"],
        vocab=c["vocab"],
        tied=c.get("tied", True),
        mlp={"hidden": c["mlp_hidden"]},
    )
    optim = OptimSpec(
        lr_max=c["lr_max"],
        lr_min=c["lr_min"],
        weight_decay=c["weight_decay"],
        clip=c["clip"],
        warmup_steps=c["warmup_steps"],
        decay_steps=c["decay_steps"],
    )
    training = TrainSpec(
        steps=c["steps"],
        batch_tokens=rows * c["context"],
        micro_batch=c["micro_batch"],
        eval_every=c["eval_every"],
        eval_windows=c["eval_sequences"],
        precision=precision,
    )
    return resolve(defaults_resolved(RunSpec(data=DataSpec(plan="paper"), model=model, optim=optim, train=training)))


def tokens(seed: int, count: int, vocab: int) -> np.ndarray:
    stream = np.random.RandomState(seed)
    noise = stream.randint(0, vocab, count)
    keep = stream.rand(count) < 0.85
    out = [1, 2]
    for i in range(2, count):
        out.append((out[i - 2] + (7 if i % 2 else 1)) % vocab if keep[i] else int(noise[i]))
    return np.array(out)


def data_of(golden: dict[str, Any]) -> PaperData:
    c = golden["config"]
    return PaperData(
        tokens(c["data_seed"], c["train_tokens"], c["vocab"]),
        tokens(c["data_seed"] + 1, c["val_tokens"], c["vocab"]),
        context=c["context"],
        rows=c["micro_batch"] * c["accumulation"],
        eval_every=c["eval_every"],
        eval_windows=c["eval_sequences"],
        steps=c["steps"],
        seed=0,
    )


def golden_names(golden: dict[str, Any]) -> dict[str, str]:
    """The names of nlq's parameters, by the trajectory's names of tensors."""
    linear = golden["query_mode"] == "original"
    query = {"attn.q": "attention.query.weight" if linear else "attention.query.linear.weight"}
    layer = LAYER_NAMES | query
    names = {
        "wte": "embedding.weight",
        "wpe": "positions.table.weight",
        "ln_f": "norm.weight",
        "lm_head": "head.weight",
    }
    for i in range(golden["config"]["layers"]):
        names |= {f"h.{i}.{theirs}": f"blocks.{i}.{ours}" for theirs, ours in layer.items()}
    return names


def load_weights(model: Transformer, golden: dict[str, Any]) -> None:
    parameters = dict(model.named_parameters())
    names = {ours: theirs for theirs, ours in golden_names(golden).items()}
    for ours, parameter in parameters.items():
        name = names[ours]
        gain = name.endswith(GAINS)
        draw = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(parameter.shape)
        parameter.data.copy_(torch.from_numpy((1.0 if gain else 0.0) + (0.1 if gain else 0.05) * draw))


def trained(golden: dict[str, Any], precision: str, steps: int | None = None) -> Rows:
    spec = spec_of(golden, precision)
    model = build(spec.model).to(torch.float64 if precision == "float64" else torch.float32)
    load_weights(model, golden)
    rows = Rows()
    if steps is not None:
        spec = spec.resolved(train={"steps": steps})
    train(model, data_of(golden), rows, spec, torch.device("cpu"))
    return rows


def test_sizes_and_streams(golden: dict[str, Any]) -> None:
    spec = spec_of(golden, "float64")
    assert cost(spec.model).total_params == golden["parameters"]
    assert cost(spec.model).non_embedding_params == golden["non_embedding_parameters"]
    c = golden["config"]
    assert tokens(c["data_seed"], 12, c["vocab"])[:2].tolist() == golden["train_tokens_head"][:2]
    assert tokens(c["data_seed"], c["train_tokens"], c["vocab"])[:12].tolist() == golden["train_tokens_head"]


def test_float64_equals_to_1e_10(golden: dict[str, Any]) -> None:
    rows = trained(golden, "float64")
    ours = [[r.step, r.loss_nats, r.grad_norm, r.lr] for r in rows.steps]
    np.testing.assert_allclose(ours, golden["steps"], rtol=1e-10, atol=0)
    planned = {row[0] for row in golden["evals"]}  # nlq evaluates after the last update in any case
    kept = [e for e in rows.evals if e.step in planned]
    per_token = [e.windows.window_sums / e.windows.window_tokens for e in kept]
    evals = [[e.step, e.loss_nats, w[0], w[-1]] for e, w in zip(kept, per_token, strict=True)]
    np.testing.assert_allclose(evals, golden["evals"], rtol=1e-10, atol=0)


def test_float32_equals_at_first(golden: dict[str, Any]) -> None:
    rows = trained(golden, "float32", steps=5)
    ours = [[r.step, r.loss_nats, r.grad_norm, r.lr] for r in rows.steps]
    np.testing.assert_allclose(ours, golden["steps"][:5], rtol=1e-4, atol=0)
