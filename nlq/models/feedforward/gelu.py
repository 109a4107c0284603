"""GELU(X W_up) W_down, with the exact (erf) GELU."""

from typing import Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from nlq.core.errors import NlqError
from nlq.core.settings import Real, Whole
from nlq.models.layers import Linear
from nlq.models.slots import ComponentOptions, SlotShape

ROUNDING = 1e-6
"""So that 4.1 × 120 is 492 units, although the product of the two floats is a little less."""


class Options(ComponentOptions):
    """Width of the hidden layer."""

    kind: Literal["gelu"] = "gelu"
    ratio: Real | None = Field(
        4.0, gt=0, le=1000, description="hidden width as a multiple of the model's width, rounded down"
    )
    hidden: Whole | None = Field(
        None, ge=1, le=10**8, description="hidden width itself, where ratio cannot say it exactly"
    )

    def resolved(self, shape: SlotShape) -> "Options":
        """The hidden width as a number, and no ratio."""
        hidden = self.hidden or int((self.ratio or 4.0) * shape.width_in + ROUNDING)
        return self.model_copy(update={"hidden": hidden, "ratio": None})


class Gelu(nn.Module):
    """The two-layer feed-forward of GPT-2, without biases."""

    def __init__(self, width: int, hidden: int, residual_scale: float) -> None:
        super().__init__()
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width, residual_scale)

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Position by position."""
        h_BTM = functional.gelu(self.up(x_BTD))
        y_BTD: Tensor = self.down(h_BTM)
        return y_BTD


def build(options: Options, shape: SlotShape) -> nn.Module:
    """Raises NlqError where the hidden layer would be empty."""
    hidden = options.resolved(shape).hidden or 0
    if hidden < 1:
        raise NlqError(f"ratio {options.ratio} of width {shape.width_in} leaves no hidden unit", "model.mlp.ratio: 4")
    return Gelu(shape.width_in, hidden, shape.residual_scale)
