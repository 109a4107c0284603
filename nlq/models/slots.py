"""What a component is given, and what it must offer.

A component is one file. It has `Options` (a subclass of ComponentOptions; its `kind` is the file's name) and
`build(options, shape)`, which returns the module or raises NlqError where it cannot stand in the slot.
"""

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

PACKAGES = {
    "query": "nlq.models.projections",
    "key": "nlq.models.projections",
    "value": "nlq.models.projections",
    "output": "nlq.models.projections",
    "attention": "nlq.models.attention",
    "mlp": "nlq.models.feedforward",
    "positions": "nlq.models.positions",
}
"""The open folder whose files may stand in each slot of ModelSpec."""


class ComponentOptions(BaseModel):
    """Base of every component's options: unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def resolved(self, shape: "SlotShape") -> "ComponentOptions":  # noqa: ARG002
        """These options with every default filled in that depends on sizes: equal systems get equal keys."""
        return self


class SlotShape(NamedTuple):
    """The sizes around a slot. `width_out` is what a projection must return: heads × head width.

    `residual_scale` multiplies the initial deviation of a matrix that writes to the residual stream,
    1/√(2L) (GPT-2; Radford et al. 2019, section 2.3), and is 1 elsewhere.
    """

    width_in: int
    width_out: int
    heads: int
    kv_heads: int
    context: int
    residual_scale: float
