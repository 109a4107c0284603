"""One learned vector for each position, added to the token's (GPT-2)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nlq.models.layers import Embedding
from nlq.models.slots import ComponentOptions, SlotShape


class Options(ComponentOptions):
    """Learned positions have no options."""

    kind: Literal["learned"] = "learned"


class Learned(nn.Module):
    """A table of context × width."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.table = Embedding(context, width)

    def forward(self, x_BTD: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Add the vector of each position."""
        positions_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
        y_BTD: Tensor = x_BTD + self.table(positions_T)
        return y_BTD


def build(_options: Options, shape: SlotShape) -> nn.Module:
    """Learned positions fit every shape."""
    return Learned(shape.context, shape.width_in)
