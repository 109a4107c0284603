"""What each optimiser does to which parameter, against formulas written out in numpy."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nlq.core.run import EvalRow, StepRow
from nlq.core.spec import ModelSpec, OptimSpec, RunSpec, TrainSpec, defaults_resolved
from nlq.data.plan import WindowsData
from nlq.models.build import build, initialise, resolve
from nlq.models.transformer import Transformer
from nlq.training.checkpoint import Checkpoints, TrainingState
from nlq.training.engine import Engine
from nlq.training.loop import train
from nlq.training.optim import MuonAndAdamW, optimiser, set_learning_rate
from nlq.training.schedule import learning_rate

KINDS: dict[str, dict[str, Any]] = {
    "adamw": {},
    "muon": {"kind": "muon"},
    "muon as first published": {"kind": "muon", "muon_scale": "original", "lr_max": 2e-2, "adamw_lr_ratio": 0.2},
    "sgd": {"kind": "sgd", "lr_max": 0.3},
    "sgd with Nesterov's momentum": {"kind": "sgd", "lr_max": 0.3, "nesterov": True},
    "sgd without momentum": {"kind": "sgd", "lr_max": 1.0, "momentum": 0},
}
DECAY = {
    "embedding.weight": 0.3,
    "positions.table.weight": 0.3,
    "blocks.0.norm_attention.weight": 0.0,
    "blocks.0.attention.query.norm_in.weight": 0.0,
    "blocks.0.attention.query.down.weight": 0.3,
    "blocks.0.attention.query.up.weight": 0.3,
    "blocks.0.attention.query.norm_out.weight": 0.0,
    "blocks.0.attention.key.weight": 0.3,
    "blocks.0.attention.value.weight": 0.3,
    "blocks.0.attention.output.weight": 0.3,
    "blocks.0.norm_mlp.weight": 0.0,
    "blocks.0.mlp.up.weight": 0.3,
    "blocks.0.mlp.down.weight": 0.3,
    "norm.weight": 0.0,
    "head.weight": 0.3,
}


def spec_of(optim: dict[str, Any], **train: Any) -> RunSpec:
    shape = {"layers": 1, "heads": 2, "width": 16, "context": 8, "vocab": 32, "variant": "nonlinear_q", "tied": False}
    settings = {"steps": 40, "batch_tokens": 64, "eval_every": 20, "eval_windows": 4, **train}
    spec = RunSpec(
        model=ModelSpec.model_validate(shape),
        optim=OptimSpec.model_validate({"warmup_steps": 3, **optim}),
        train=TrainSpec.model_validate(settings),
    )
    return resolve(defaults_resolved(spec))


def model_of(spec: RunSpec) -> Transformer:
    model = build(spec.model)
    initialise(model, 0)
    return model


def by_name(made: torch.optim.Optimizer, setting: str) -> dict[str, Any]:
    """A setting of every group, by the names of its parameters."""
    return {name: group[setting] for group in made.param_groups for name in group["param_names"]}


def made_for(optim: dict[str, Any]) -> tuple[dict[str, nn.Parameter], torch.optim.Optimizer]:
    spec = spec_of(optim)
    parameters = dict(model_of(spec).named_parameters())
    return parameters, optimiser(parameters, spec.optim)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_its_decay_by_name(kind: str) -> None:
    parameters, made = made_for({**KINDS[kind], "weight_decay": 0.3})
    assert by_name(made, "weight_decay") == DECAY
    placed = {n: p for g in made.param_groups for n, p in zip(g["param_names"], g["params"], strict=True)}
    assert placed.keys() == parameters.keys()
    assert all(placed[name] is parameters[name] for name in parameters)


def test_muon_has_the_matrices_of_the_blocks_and_adamw_the_rest() -> None:
    _, made = made_for({"kind": "muon"})
    assert isinstance(made, MuonAndAdamW)
    hidden = {name for name, decay in DECAY.items() if name.startswith("blocks.") and decay}
    assert by_name(made.muon, "nesterov") == dict.fromkeys(hidden, True)
    assert by_name(made.adamw, "betas") == dict.fromkeys(DECAY.keys() - hidden, (0.9, 0.95))
    assert all(by_name(made.adamw, "fused").values())


def test_the_schedule_moves_both_parts_and_keeps_their_ratio() -> None:
    _, made = made_for({"kind": "muon", "adamw_lr_ratio": 0.25, "lr_max": 0.04})
    assert isinstance(made, MuonAndAdamW)
    for lr in (0.04, 0.008):
        assert set(by_name(made.muon, "lr").values()) == {lr}
        assert set(by_name(made.adamw, "lr").values()) == {lr / 4}
        set_learning_rate(made, 0.008)


def bfloat16(x: np.ndarray) -> np.ndarray:
    """Rounded to nearest, ties to even, as PyTorch does."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def orthogonal(g: np.ndarray, rounded: bool) -> np.ndarray:
    """Five Newton–Schulz steps x ← a x + (b A + c A²) x with A = x xᵀ, from g over its norm, on the wide side."""
    keep = bfloat16 if rounded else np.asarray
    x = keep(g.T if g.shape[0] > g.shape[1] else g)
    x = keep(x / keep(np.linalg.norm(x)))
    for _ in range(5):
        a = keep(x @ x.T)
        x = keep(3.4445 * x + keep(-4.7750 * a + 2.0315 * a @ a) @ x)
    return x.T if g.shape[0] > g.shape[1] else x


@pytest.mark.parametrize(("rounded", "tolerance"), [(True, 0.01), (False, 0.1)], ids=["rounded", "not rounded"])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("scale", ["match_rms_adamw", "original"])
@pytest.mark.parametrize("shape", [(16, 8), (8, 16), (8, 8)])
def test_muon_against_numpy(
    shape: tuple[int, int], scale: str, nesterov: bool, rounded: bool, tolerance: float
) -> None:
    """Three updates. An orthogonal 16 × 8 matrix has entries of about 0.25. PyTorch iterates in bfloat16, whose
    rounding shifts an entry by up to 0.05; a reference rounded in the same places agrees but for single bits. The
    momentum is exact in float32. Nesterov's and the plain form differ by more than 0.2."""
    draw, lr, decay, mu = np.random.default_rng(4), 0.1, 0.2, 0.9
    spec = spec_of({"kind": "muon", "momentum": mu, "nesterov": nesterov, "muon_scale": scale, "weight_decay": decay})
    theta, m = draw.standard_normal(shape), np.zeros(shape)
    parameters = {
        "blocks.0.w": nn.Parameter(torch.tensor(theta, dtype=torch.float32)),
        "embedding.weight": nn.Parameter(torch.zeros(2, 2)),
    }
    made = optimiser(parameters, spec.optim)
    set_learning_rate(made, lr)
    rows, columns = shape
    size = lr * (0.2 * max(rows, columns) ** 0.5 if scale == "match_rms_adamw" else max(1, rows / columns) ** 0.5)
    for _ in range(3):
        g = draw.standard_normal(shape)
        parameters["blocks.0.w"].grad = torch.tensor(g, dtype=torch.float32)
        made.step()
        m = mu * m + (1 - mu) * g
        theta = (1 - lr * decay) * theta - size * orthogonal((1 - mu) * g + mu * m if nesterov else m, rounded)
    np.testing.assert_allclose(made.state[parameters["blocks.0.w"]]["momentum_buffer"], m, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(parameters["blocks.0.w"].detach(), theta, rtol=0, atol=size * tolerance)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_decay_alone_shrinks_matrices_by_rate_times_decay(kind: str) -> None:
    """Without a gradient nothing else moves: exact in float32 also for Muon."""
    parameters, made = made_for({"kind": kind, "weight_decay": 0.5})
    before = {name: p.detach().clone() for name, p in parameters.items()}
    for p in parameters.values():
        p.grad = torch.zeros_like(p)
    set_learning_rate(made, 0.1)
    made.step()
    for name, p in parameters.items():
        expected = before[name] * (0.95 if DECAY[name] else 1.0)
        torch.testing.assert_close(p.detach(), expected, rtol=1e-6, atol=0, msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("mu", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_against_numpy(mu: float, nesterov: bool, dtype: torch.dtype) -> None:
    draw, lr, decay = np.random.default_rng(5), 0.1, 0.2
    spec = spec_of({"kind": "sgd", "momentum": mu, "nesterov": nesterov, "weight_decay": decay})
    values = {"blocks.0.w": draw.standard_normal((4, 3)), "norm.weight": draw.standard_normal(3)}
    parameters = {name: nn.Parameter(torch.tensor(value, dtype=dtype)) for name, value in values.items()}
    made = optimiser(parameters, spec.optim)
    set_learning_rate(made, lr)
    m: dict[str, np.ndarray] = {}
    for _ in range(3):
        for name, parameter in parameters.items():
            g = draw.standard_normal(parameter.shape)
            parameter.grad = torch.tensor(g, dtype=dtype)
            g = g + (decay * values[name] if parameter.dim() == 2 else 0)
            m[name] = mu * m[name] + g if name in m else g
            values[name] = values[name] - lr * (g + mu * m[name] if nesterov else m[name])
        made.step()
    for name, parameter in parameters.items():
        np.testing.assert_allclose(parameter.detach(), values[name], rtol=1e-5 if dtype == torch.float32 else 1e-12)


def test_fused_adamw_divides_by_grad_scale_and_stays_where_an_infinity_was_found() -> None:
    """What the fused kernels read from the optimiser's attributes is open to whoever steps."""
    plain, scaled = made_for({}), made_for({})
    for factor, (parameters, _) in ((1.0, plain), (4.0, scaled)):
        for p in parameters.values():
            p.grad = factor * torch.ones_like(p)
    scaled[1].grad_scale, scaled[1].found_inf = torch.tensor(4.0), torch.tensor(0.0)  # type: ignore[attr-defined]
    for _, made in (plain, scaled):
        made.step()
    scaled[1].found_inf.fill_(1.0)  # type: ignore[attr-defined]
    scaled[1].step()
    for name, p in plain[0].items():
        assert torch.equal(p, scaled[0][name]), name


class Rows:
    """A sink that keeps the steps."""

    def __init__(self) -> None:
        self.steps: list[StepRow] = []

    def step(self, row: StepRow) -> None:
        self.steps.append(row)

    def evaluation(self, row: EvalRow) -> None:
        """Not looked at."""

    def flush(self) -> None:
        """Nothing to make safe."""


def data() -> WindowsData:
    """A text in which every token follows from the one before."""
    tokens = np.arange(3000) * 5 % 32
    return WindowsData(tokens, tokens[:500], tokens[500:1000], context=8, rows=8, seed=0, eval_windows=4)


@pytest.mark.parametrize(
    ("kind", "schedule"), [*((kind, "linear") for kind in KINDS), ("adamw", "cosine"), ("muon", "wsd")]
)
def test_each_trains_by_its_schedule(kind: str, schedule: str) -> None:
    spec, rows = spec_of({"lr_max": 1e-2, "schedule": schedule, **KINDS[kind]}), Rows()
    outcome = train(model_of(spec), data(), rows, spec, torch.device("cpu"))
    assert (outcome.steps_done, outcome.diverged_step) == (40, None)
    assert [row.lr for row in rows.steps] == [learning_rate(step, spec.optim) for step in range(40)]
    assert rows.steps[-1].loss_nats < rows.steps[0].loss_nats - 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_holds_all_of_the_state(kind: str, tmp_path: Path) -> None:
    """Saved after three updates, restored into another model, and the same three updates on: bit for bit."""
    spec, batches = spec_of(KINDS[kind]), data()
    whole, resumed = (Engine(model_of(spec), spec, torch.device("cpu")) for _ in range(2))
    for step in range(3):
        whole.update(batches.batch(step), step)
    keeper = Checkpoints(tmp_path, spec, 1, print)
    keeper.save(TrainingState(3), whole)
    assert keeper.restore(resumed, lambda _: True).step == 3
    for step in range(3, 6):
        assert_equal_state(whole, resumed)
        for engine in (whole, resumed):
            engine.update(batches.batch(step), step)
    assert_equal_state(whole, resumed)


def assert_equal_state(one: Engine, other: Engine) -> None:
    first, second = one.tensors(), other.tensors()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_state_dict_reaches_both_parts() -> None:
    """Loaded state and groups are what the parts then step with."""
    (parameters, made), (others, loaded) = made_for({"kind": "muon"}), made_for({"kind": "muon"})
    draw_gradients(parameters, others)
    made.step()
    set_learning_rate(made, 0.1)
    loaded.load_state_dict(copy.deepcopy(made.state_dict()))  # a state dict holds the tensors themselves
    with torch.no_grad():
        torch._foreach_copy_(list(others.values()), list(parameters.values()))
    draw_gradients(parameters, others)
    made.step()
    loaded.step()
    assert all(torch.equal(p, others[name]) for name, p in parameters.items())
    assert all(
        torch.equal(v, loaded.state[others[n]][k]) for n, p in parameters.items() for k, v in made.state[p].items()
    )


def draw_gradients(parameters: dict[str, nn.Parameter], others: dict[str, nn.Parameter]) -> None:
    for name, p in parameters.items():
        p.grad = torch.randn(p.shape)
        others[name].grad = p.grad.clone()
