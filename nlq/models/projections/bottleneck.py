"""scale · (X + f(X)), f(X) = LayerNorm(GELU(RMSNorm(X) W1) W2): the paper's nonlinear query.

Karbevski, "Beyond Linearity in Attention Projections" (arXiv 2603.13381v3, Eq. 2). W1 is d × r and W2 is r × d with
r = d/2, so the two matrices have the d² parameters of W_Q, and the two gains add 2d. The 1/2 of Q = (X + f(X))/2 stands
in the softmax scale, as in the paper's code; the two places give the same function.
"""

from typing import Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from nlq.core.errors import NlqError
from nlq.core.settings import Real, Whole
from nlq.models.layers import LayerNorm, Linear, RMSNorm
from nlq.models.slots import ComponentOptions, SlotShape


class Options(ComponentOptions):
    """Size of the bottleneck, and where the map starts."""

    kind: Literal["bottleneck"] = "bottleneck"
    rank: Whole | None = Field(None, ge=1, le=10**7, description="hidden width R; half the model's width unless given")
    out_gain: Real = Field(1.0, description="initial gain of the output norm; 0 starts at the identity")
    scale: Real = Field(1.0, description="factor on X + f(X)")

    def resolved(self, shape: SlotShape) -> "Options":
        """The rank as a number."""
        return self.model_copy(update={"rank": self.rank or shape.width_in // 2})


class Bottleneck(nn.Module):
    """The paper's residual map through a normalised bottleneck of `rank`."""

    def __init__(self, width: int, rank: int, out_gain: float, scale: float) -> None:
        super().__init__()
        self.norm_in = RMSNorm(width)
        self.down = Linear(width, rank)
        self.up = Linear(rank, width)
        self.norm_out = LayerNorm(width, out_gain)
        self.scale = scale

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """scale · (x + f(x))."""
        h_BTR = functional.gelu(self.down(self.norm_in(x_BTD)))
        q_BTD: Tensor = x_BTD + self.norm_out(self.up(h_BTR))
        return q_BTD if self.scale == 1.0 else self.scale * q_BTD


def build(options: Options, shape: SlotShape) -> nn.Module:
    """Raises NlqError where the map's two widths differ."""
    if shape.width_out != shape.width_in:
        raise NlqError(
            f"bottleneck adds its input to its output, and the widths differ: {shape.width_in}, {shape.width_out}",
            f"model.kv_heads: {shape.heads}, or kind: linear",
        )
    rank = options.resolved(shape).rank or 0
    if rank < 1:
        raise NlqError(f"half of width {shape.width_in} leaves no hidden unit", "model.query.rank: 1")
    return Bottleneck(shape.width_in, rank, options.out_gain, options.scale)
