"""What METHOD-like algebra says of the systems, checked in float64; sizes at the paper's shape."""

import math

import numpy as np
import pytest
import torch
from scipy.special import erf

from nlq.core.spec import ModelSpec, OptimSpec, RunSpec, defaults_resolved
from nlq.models.build import build, initialise, resolve
from nlq.models.cost import cost
from nlq.models.transformer import Transformer, token_losses
from nlq.models.variants import variants
from nlq.training.schedule import learning_rate

PAPER = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocab": 50304}
SMALL = {"layers": 2, "heads": 2, "width": 16, "context": 8, "vocab": 30}
SIZES = {
    "baseline": 84_953_856,
    "identity": 77_875_968,
    "identity_mlp4.5": 84_953_856,
    "residual_linear": 84_953_856,
    "nonlinear_q": 84_972_288,
    "nonlinear_q_unscaled": 84_972_288,
    "mlp_w": 95_570_688,
}


def spec_of(**model: object) -> ModelSpec:
    return resolve(defaults_resolved(RunSpec(model=ModelSpec.model_validate({**SMALL, **model})))).model


def model_of(**model: object) -> Transformer:
    built = build(spec_of(**model))
    initialise(built, 0)
    return built.double()


def tokens() -> torch.Tensor:
    return torch.randint(30, (3, 8), generator=torch.Generator().manual_seed(2))


def query_weight(model: Transformer, layer: int) -> torch.Tensor:
    return model.blocks[layer].attention.query.weight.data


def test_sizes_cover_all_variants() -> None:
    assert set(SIZES) == set(variants())


@pytest.mark.parametrize("variant", SIZES)
def test_sizes_at_the_papers_shape(variant: str) -> None:
    one = cost(spec_of(**PAPER, variant=variant))
    assert one.non_embedding_params == SIZES[variant]
    assert one.total_params == SIZES[variant] + (50304 + 1024) * 768


@pytest.mark.parametrize(
    ("mlp", "size"), [({"hidden": 3328}, 89_672_448), ({"ratio": 4.5}, 92_031_744), ({"ratio": 5}, 99_109_632)]
)
def test_sizes_of_wider_feedforwards(mlp: dict[str, float], size: int) -> None:
    assert cost(spec_of(**PAPER, mlp=mlp)).non_embedding_params == size


def test_flops_are_six_a_matrix_parameter_and_twelve_for_attention() -> None:
    """6N + 12 L d T (Chowdhery et al. 2022), N without positions and gains, which are no matrix products."""
    one = cost(spec_of(**PAPER))
    matrices = one.total_params - 1024 * 768 - 25 * 768
    assert one.flops_per_token == 6 * matrices + 12 * 12 * 768 * 1024


@torch.no_grad()
def test_identity_is_the_baseline_with_half_the_unit_matrix() -> None:
    identity, baseline = model_of(variant="identity"), model_of()
    for layer in range(2):
        query_weight(baseline, layer).copy_(torch.eye(16) / 2)
    assert torch.equal(identity(tokens()), baseline(tokens()))


@torch.no_grad()
def test_residual_linear_is_the_baseline_with_a_shifted_matrix() -> None:
    residual, baseline = model_of(variant="residual_linear"), model_of()
    for layer in range(2):
        own = residual.blocks[layer].attention.query.linear.weight
        query_weight(baseline, layer).copy_((torch.eye(16) + own) / 2)
    torch.testing.assert_close(residual(tokens()), baseline(tokens()), rtol=1e-12, atol=1e-13)


@torch.no_grad()
def test_gain_zero_starts_at_the_identity() -> None:
    zero = model_of(variant="nonlinear_q", query={"out_gain": 0})
    assert torch.equal(zero(tokens()), model_of(variant="identity")(tokens()))


@torch.no_grad()
def test_the_half_may_stand_in_the_map_or_in_the_softmax() -> None:
    in_softmax = model_of(variant="nonlinear_q")
    in_map = model_of(variant="nonlinear_q", query={"scale": 0.5}, attention={"scale": 1.0})
    torch.testing.assert_close(in_map(tokens()), in_softmax(tokens()), rtol=1e-14, atol=1e-15)


@torch.no_grad()
def test_the_norm_gives_f_the_size_of_x_at_the_start() -> None:
    query = model_of(variant="nonlinear_q", layers=1, width=768).blocks[0].attention.query
    x = torch.randn(64, 1, 768, generator=torch.Generator().manual_seed(0)).double()
    f = query(x) - x
    assert float(f.pow(2).mean().sqrt()) == pytest.approx(0.9997, abs=2e-4)


@torch.no_grad()
def test_loss_starts_near_the_log_of_the_vocabulary() -> None:
    loss = float(token_losses(model_of(), tokens(), tokens().roll(-1, 1)).mean())
    assert loss == pytest.approx(math.log(30), abs=0.1)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["baseline", "identity", "residual_linear", "nonlinear_q", "nonlinear_q_unscaled"])
def test_forward_agrees_with_numpy(variant: str) -> None:
    """Written from the definitions alone, with numpy, for one sequence."""
    model = model_of(variant=variant)
    w = {name: p.numpy() for name, p in model.named_parameters()}
    x_T = tokens()[0].numpy()
    ours = model(tokens()[:1])[0].numpy()
    np.testing.assert_allclose(ours, numpy_forward(w, x_T, variant), rtol=1e-10, atol=1e-12)


def layer_norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x / math.sqrt(2))) / 2


def numpy_query(w: dict[str, np.ndarray], at: str, x: np.ndarray, variant: str) -> np.ndarray:
    if variant == "baseline":
        return x @ w[f"{at}.weight"].T
    if variant == "identity":
        return x / 2
    if variant == "residual_linear":
        return (x + x @ w[f"{at}.linear.weight"].T) / 2
    rms = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[f"{at}.norm_in.weight"]
    f = layer_norm(gelu(rms @ w[f"{at}.down.weight"].T) @ w[f"{at}.up.weight"].T, w[f"{at}.norm_out.weight"])
    return x + f if variant == "nonlinear_q_unscaled" else (x + f) / 2


def numpy_forward(w: dict[str, np.ndarray], x_T: np.ndarray, variant: str) -> np.ndarray:
    x = w["embedding.weight"][x_T] + w["positions.table.weight"][: len(x_T)]
    future = np.triu(np.full((len(x_T), len(x_T)), -np.inf), 1)
    for i in range(2):
        at = f"blocks.{i}"
        n = layer_norm(x, w[f"{at}.norm_attention.weight"])
        q = numpy_query(w, f"{at}.attention.query", n, variant)
        k, v = (n @ w[f"{at}.attention.{name}.weight"].T for name in ("key", "value"))
        heads = []
        for h in range(2):
            part = slice(8 * h, 8 * h + 8)
            logits = q[:, part] @ k[:, part].T / math.sqrt(8) + future
            weights = np.exp(logits - logits.max(-1, keepdims=True))
            heads.append(weights / weights.sum(-1, keepdims=True) @ v[:, part])
        x = x + np.concatenate(heads, -1) @ w[f"{at}.attention.output.weight"].T
        n = layer_norm(x, w[f"{at}.norm_mlp.weight"])
        x = x + gelu(n @ w[f"{at}.mlp.up.weight"].T) @ w[f"{at}.mlp.down.weight"].T
    return layer_norm(x, w["norm.weight"]) @ w["embedding.weight"].T


def test_learning_rate_at_its_corners() -> None:
    optim = OptimSpec(lr_max=1.0, lr_min=0.1, warmup_steps=9, decay_steps=109)
    assert learning_rate(0, optim) == pytest.approx(0.1)
    assert learning_rate(8, optim) == pytest.approx(0.9)
    assert learning_rate(9, optim) == 1.0
    assert learning_rate(59, optim) == pytest.approx(0.55)
    assert learning_rate(109, optim) == learning_rate(10**6, optim) == 0.1


@pytest.mark.parametrize("warmup", [0, 5, 200])
def test_learning_rate_is_never_out_of_bounds(warmup: int) -> None:
    optim = OptimSpec(lr_max=1e-3, lr_min=1e-4, warmup_steps=warmup, decay_steps=100)
    assert all(0 < learning_rate(step, optim) <= 1e-3 for step in range(300))
