"""X W: the ordinary projection."""

from typing import Literal

from torch import nn

from nlq.models.layers import Linear
from nlq.models.slots import ComponentOptions, SlotShape


class Options(ComponentOptions):
    """A linear map has no options."""

    kind: Literal["linear"] = "linear"


def build(_options: Options, shape: SlotShape) -> nn.Module:
    """A matrix of width_out × width_in."""
    return Linear(shape.width_in, shape.width_out, shape.residual_scale)
