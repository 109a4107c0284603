"""X + X W: the linear projection seen from the identity (the control called "residual" in the paper's code)."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from nlq.core.errors import NlqError
from nlq.models.layers import Linear
from nlq.models.slots import ComponentOptions, SlotShape


class Options(ComponentOptions):
    """A residual linear map has no options."""

    kind: Literal["residual_linear"] = "residual_linear"


class ResidualLinear(nn.Module):
    """x + W x."""

    def __init__(self, shape: SlotShape) -> None:
        super().__init__()
        self.linear = Linear(shape.width_in, shape.width_out, shape.residual_scale)

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """The input plus its linear image."""
        y_BTD: Tensor = x_BTD + self.linear(x_BTD)
        return y_BTD


def build(_options: Options, shape: SlotShape) -> nn.Module:
    """Raises NlqError where the map's two widths differ."""
    if shape.width_out != shape.width_in:
        raise NlqError(
            f"residual_linear adds its input to its output, and the widths differ: {shape.width_in}, {shape.width_out}",
            f"model.kv_heads: {shape.heads}, or kind: linear",
        )
    return ResidualLinear(shape)
