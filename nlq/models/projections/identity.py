"""X itself: no matrix at all (Karbevski & Mijoski, arXiv 2510.23912: W_Q may be absorbed by its neighbours)."""

from typing import Literal

from torch import nn

from nlq.core.errors import NlqError
from nlq.models.slots import ComponentOptions, SlotShape


class Options(ComponentOptions):
    """The identity has no options."""

    kind: Literal["identity"] = "identity"


def build(_options: Options, shape: SlotShape) -> nn.Module:
    """The identity. Raises NlqError where heads are grouped or heads × head width is not the model's width."""
    if shape.kv_heads != shape.heads or shape.width_out != shape.width_in:
        raise NlqError(
            f"identity needs one key/value head for each query head, found {shape.heads} and {shape.kv_heads}",
            f"model.kv_heads: {shape.heads}, or kind: linear",
        )
    return nn.Identity()
