"""The few layers that everything is made of. None has a bias; every norm has eps 1e-5 (nanoGPT; the paper's code).

Legend of shape suffixes in `models/`: B batch, T time, D model width, H heads, G key/value heads, K head width,
V vocabulary, M hidden width of the feed-forward, R rank.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

INIT_STD = 0.02
NORM_EPS = 1e-5


class Linear(nn.Linear):
    """x W^T without a bias, in the type of its weights: bfloat16 ones make a bfloat16 product of any input.

    `init_std` is the deviation that its weights are drawn with.
    """

    def __init__(self, width_in: int, width_out: int, residual_scale: float = 1.0) -> None:
        super().__init__(width_in, width_out, bias=False)
        self.init_std = INIT_STD * residual_scale

    def forward(self, input: Float[Tensor, "*N I"]) -> Float[Tensor, "*N O"]:  # noqa: A002 - nn.Linear's name
        """The product."""
        return functional.linear(input.to(self.weight.dtype), self.weight)


class Embedding(nn.Embedding):
    """Rows of a table. `init_std` as in Linear."""

    init_std = INIT_STD


class LayerNorm(nn.Module):
    """Layer normalisation with a gain and no bias."""

    def __init__(self, width: int, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), gain))

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """Centre and scale the last axis."""
        return functional.layer_norm(x, self.weight.shape, self.weight, None, NORM_EPS)


class RMSNorm(nn.RMSNorm):
    """Root-mean-square normalisation; PyTorch's own default eps depends on the type, so it is passed."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=NORM_EPS)
