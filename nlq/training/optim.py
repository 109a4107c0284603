"""The optimiser and its groups of parameters."""

import torch
from torch import nn

from nlq.core.spec import OptimSpec


def adamw(model: nn.Module, optim: OptimSpec) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019) with weight decay on tensors of two or more dimensions, embeddings included,
    and none on gains (nanoGPT `configure_optimizers`)."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    gains = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": gains, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=optim.lr_max, betas=(optim.beta1, optim.beta2), eps=optim.eps, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Give every group the rate of the coming update."""
    for group in optimiser.param_groups:
        group["lr"] = lr
