"""The optimiser, and which of its groups each parameter belongs to, by name.

Every group carries `lr_ratio`, its learning rate as a share of the schedule's, and `param_names`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from nlq.core.optim import OptimSpec

HIDDEN = "blocks."
"""The names of the blocks' parameters begin so; embedding, positions, head and the last norm stand outside."""

LR_RATIO = "lr_ratio"

Parameters = Mapping[str, nn.Parameter]


def optimiser(parameters: Parameters, optim: OptimSpec) -> torch.optim.Optimizer:
    """The optimiser of a resolved spec over parameters by name."""
    if optim.kind == "sgd":
        return _sgd(parameters, optim)
    if optim.kind == "muon":
        hidden = {name: p for name, p in parameters.items() if name.startswith(HIDDEN) and p.dim() == 2}
        rest = {name: p for name, p in parameters.items() if name not in hidden}
        return MuonAndAdamW(_muon(hidden, optim), _adamw(rest, optim, optim.adamw_lr_ratio or 1.0))
    return _adamw(parameters, optim)


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Give every group its rate of the coming update: the schedule's times the group's ratio."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group[LR_RATIO]


class MuonAndAdamW(torch.optim.Optimizer):
    """Two optimisers as one: Muon for the matrices of the blocks, AdamW for everything else.

    State and groups are those of both. Muon does not look at `found_inf`; who needs that asks before a step.
    """

    def __init__(self, muon: torch.optim.Muon, adamw: torch.optim.AdamW) -> None:
        self.muon, self.adamw = muon, adamw
        super().__init__([*muon.param_groups, *adamw.param_groups], {})
        self._share()

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One update of both; `closure` is called once."""
        loss = self.muon.step(closure)  # type: ignore[no-untyped-call]
        self.adamw.step()
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a loaded state, of which both parts are told."""
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        """Both parts work on the groups and the state of the whole, so that what is loaded into it reaches them."""
        count = len(self.muon.param_groups)
        self.muon.param_groups, self.adamw.param_groups = self.param_groups[:count], self.param_groups[count:]
        self.muon.state = self.adamw.state = self.state


def _groups(parameters: Parameters, weight_decay: float, lr_ratio: float = 1.0) -> list[dict[str, Any]]:
    """Weight decay on tensors of two or more dimensions, embeddings and positions included, and none on gains
    (nanoGPT `configure_optimizers`)."""
    decayed = [(name, p) for name, p in parameters.items() if p.dim() >= 2]
    gains = [(name, p) for name, p in parameters.items() if p.dim() < 2]
    groups = [(decayed, weight_decay), (gains, 0.0)]
    return [{"params": named, "weight_decay": decay, LR_RATIO: lr_ratio} for named, decay in groups if named]


def _adamw(parameters: Parameters, optim: OptimSpec, lr_ratio: float = 1.0) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101), weight decay decoupled: θ ← θ − η λ θ − η m̂/(√v̂ + ε)."""
    groups = _groups(parameters, optim.weight_decay, lr_ratio)
    betas = (optim.beta1, optim.beta2)
    return torch.optim.AdamW(groups, lr=optim.lr_max * lr_ratio, betas=betas, eps=optim.eps, fused=True)


def _muon(parameters: Parameters, optim: OptimSpec) -> torch.optim.Muon:
    """Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon): momentum made orthogonal by five Newton–Schulz
    steps in bfloat16, weight decay decoupled.

    `original` multiplies the rate by √max(1, rows/columns); `match_rms_adamw` by 0.2 √max(rows, columns), which gives
    updates of AdamW's usual size, so that its rates and decay carry over (Liu et al. 2025, arXiv 2502.16982).
    """
    groups = _groups(parameters, optim.weight_decay)
    return torch.optim.Muon(groups, lr=optim.lr_max, adjust_lr_fn=optim.muon_scale, **_momentum(optim))


def _sgd(parameters: Parameters, optim: OptimSpec) -> torch.optim.SGD:
    """Gradient descent with momentum (Sutskever et al. 2013, in PyTorch's form): g ← ∇ + λ θ, m ← μ m + g from m = g,
    θ ← θ − η m, or θ − η (g + μ m) after Nesterov. The decay passes through the momentum."""
    return torch.optim.SGD(_groups(parameters, optim.weight_decay), lr=optim.lr_max, fused=True, **_momentum(optim))


def _momentum(optim: OptimSpec) -> dict[str, Any]:
    assert optim.momentum is not None, "the spec is not resolved"
    assert optim.nesterov is not None, "the spec is not resolved"
    return {"momentum": optim.momentum, "nesterov": optim.nesterov}
