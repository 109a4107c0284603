"""What every component must hold, whatever its kind. A new file in an open folder is picked up by itself."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from nlq.core import plugin
from nlq.core.spec import SLOTS, ModelSpec, OptimSpec, RunSpec, defaults_resolved
from nlq.models.build import build, build_on_meta, initialise, resolve
from nlq.models.cost import cost, count_parameters
from nlq.models.slots import PACKAGES, ComponentOptions
from nlq.models.transformer import Transformer, token_losses
from nlq.models.variants import variants
from nlq.training.optim import optimiser

SHAPE = {"layers": 2, "heads": 4, "width": 32, "context": 16, "vocab": 50}
COMPONENTS = [(slot, kind) for slot in SLOTS for kind in plugin.kinds(PACKAGES[slot])]


def systems() -> Iterator[tuple[str, dict[str, object]]]:
    yield from ((name, {"variant": name}) for name in variants())
    yield from ((f"{slot}={kind}", {slot: kind}) for slot, kind in COMPONENTS)
    yield "grouped heads", {"kv_heads": 2}
    yield "untied head", {"tied": False}


SYSTEMS = dict(systems())


@pytest.fixture(params=SYSTEMS, ids=str)
def system(request: pytest.FixtureRequest) -> ModelSpec:
    spec = RunSpec(model=ModelSpec.model_validate({**SHAPE, **SYSTEMS[request.param]}))
    return resolve(defaults_resolved(spec)).model


def model_of(spec: ModelSpec, seed: int = 0, spread: bool = True) -> Transformer:
    """In float64; gains are spread about their start, so that none hides a fault by being 1."""
    model = build(spec)
    initialise(model, seed)
    model.double()
    if spread:
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.data += (
                    0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)).double()
                )
    return model


def tokens(rows: int = 3) -> torch.Tensor:
    return torch.randint(50, (rows, 16), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(("slot", "kind"), COMPONENTS)
def test_a_component_has_options_named_by_its_file(slot: str, kind: str) -> None:
    options = plugin.load(PACKAGES[slot], kind).Options
    assert issubclass(options, ComponentOptions)
    assert options().kind == kind
    assert all(f.description or name == "kind" for name, f in options.model_fields.items())


def test_counts_are_those_of_the_parameters(system: ModelSpec) -> None:
    model = model_of(system)
    assert cost(system).total_params == sum({id(p): p.numel() for p in model.parameters()}.values())
    left_out = count_parameters(model.embedding) + count_parameters(model.positions)
    assert cost(system).non_embedding_params == cost(system).total_params - left_out


def test_counting_allocates_nothing(system: ModelSpec) -> None:
    assert all(p.is_meta for p in build_on_meta(system).parameters())


@torch.no_grad()
def test_a_token_changes_nothing_before_it(system: ModelSpec) -> None:
    model, x_BT = model_of(system), tokens()
    changed_BT = x_BT.clone()
    changed_BT[:, 9] = (changed_BT[:, 9] + 1) % 50
    before, after = model(x_BT), model(changed_BT)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.equal(before[:, 9:], after[:, 9:])


@torch.no_grad()
def test_rows_of_a_batch_do_not_meet(system: ModelSpec) -> None:
    model, x_BT = model_of(system), tokens(4)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(x_BT[order]), model(x_BT)[order], rtol=1e-12, atol=1e-12)


def test_every_parameter_learns(system: ModelSpec) -> None:
    model, x_BT = model_of(system), tokens()
    token_losses(model, x_BT, x_BT.roll(-1, 1)).mean().backward()
    assert all(p.grad is not None and bool(p.grad.abs().max() > 0) for p in model.parameters())


def test_matrices_start_with_their_deviation(system: ModelSpec) -> None:
    wide = resolve(RunSpec(model=system.model_copy(update={"width": 256, "mlp": {}, "query": {}}))).model
    model = build(wide)
    initialise(model, 3)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            residual = name.endswith(("attention.output", "attention.output.linear", "mlp.down"))
            expected = 0.02 / (2 * wide.layers) ** 0.5 if residual else 0.02
            assert float(module.weight.detach().std()) == pytest.approx(expected, rel=0.05), name


def test_matrices_decay_and_gains_do_not(system: ModelSpec) -> None:
    model = model_of(system)
    decayed, gains = optimiser(dict(model.named_parameters()), OptimSpec(weight_decay=0.3)).param_groups
    names = {id(p): name for name, p in model.named_parameters()}
    assert (decayed["weight_decay"], gains["weight_decay"]) == (0.3, 0.0)
    assert all("norm" in names[id(p)] for p in gains["params"])
    assert not any("norm" in names[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(gains["params"]) == len(names)


@torch.no_grad()
def test_the_written_out_attention_is_the_fused_one(system: ModelSpec) -> None:
    written = system.model_copy(update={"attention": {**system.attention, "path": "math"}})
    fused, math = model_of(system), model_of(written)
    torch.testing.assert_close(math(tokens()), fused(tokens()), rtol=1e-10, atol=1e-12)


def test_arms_of_one_seed_share_the_weights_that_both_have(system: ModelSpec) -> None:
    base = dict(model_of(resolve(RunSpec(model=ModelSpec(**SHAPE))).model, spread=False).named_parameters())
    own = dict(model_of(system, spread=False).named_parameters())
    same = [name for name in base if name in own and base[name].shape == own[name].shape]
    assert "blocks.0.attention.value.weight" in same or "value" in str(system)
    for name in same:
        assert torch.equal(base[name], own[name]) or "output" in name, name
    other_seed = dict(model_of(system, seed=1, spread=False).named_parameters())
    assert not torch.equal(own["embedding.weight"], other_seed["embedding.weight"])
