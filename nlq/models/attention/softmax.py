"""Causal softmax attention. The softmax scale is computed in one place, for the fused path and the written-out one."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from nlq.core.settings import Real
from nlq.models.attention._blocks import attend_blocks
from nlq.models.slots import ComponentOptions, SlotShape

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]

BLOCKS_FROM, BLOCKS_UP_TO = 64, 2048
"""Contexts between which bfloat16 blocks beat the fused kernel on a CPU, and their weights still fit in memory."""


class Options(ComponentOptions):
    """Scale of the logits, and which of the two equal paths computes them."""

    kind: Literal["softmax"] = "softmax"
    scale: Real = Field(1.0, gt=0, description="factor on the usual 1/√(head width)")
    path: Literal["fused", "math"] = Field("fused", description="PyTorch's fused attention, or written out")


class Softmax(nn.Module):
    """softmax(s Q K^T) V over the past and present, s = scale/√K (Vaswani et al. 2017, Eq. 1)."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.scale = options.scale
        self.attend = attend_fused if options.path == "fused" else attend_math

    def forward(
        self, q_BHTK: Float[Tensor, "B H T K"], k_BGTK: Float[Tensor, "B G T K"], v_BGTK: Float[Tensor, "B G T K"]
    ) -> Float[Tensor, "B H T K"]:
        """Mix values; each group of H/G query heads shares one key/value head."""
        softmax_scale = self.scale / math.sqrt(q_BHTK.shape[-1])
        if torch.bfloat16 not in {q_BHTK.dtype, k_BGTK.dtype, v_BGTK.dtype}:
            return self.attend(q_BHTK, k_BGTK, v_BGTK, softmax_scale)
        attend, dtype = self._bf16_path(q_BHTK)
        return attend(q_BHTK.to(dtype), k_BGTK.to(dtype), v_BGTK.to(dtype), softmax_scale)

    def _bf16_path(self, q_BHTK: Float[Tensor, "B H T K"]) -> "tuple[Attend, torch.dtype]":
        """On a CPU the fused kernel is slow in bfloat16: short contexts take it in float32, longer ones blocks."""
        if q_BHTK.device.type == "cpu" and self.attend is attend_fused:
            context = q_BHTK.shape[-2]
            if context < BLOCKS_FROM:
                return attend_fused, torch.float32
            if context <= BLOCKS_UP_TO:
                return attend_blocks, torch.bfloat16
        return self.attend, torch.bfloat16


def attend_fused(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BGTK: Float[Tensor, "B G T K"],
    v_BGTK: Float[Tensor, "B G T K"],
    softmax_scale: float,
) -> Float[Tensor, "B H T K"]:
    """By the device's fused kernel."""
    grouped = q_BHTK.shape[1] != k_BGTK.shape[1]
    return functional.scaled_dot_product_attention(
        q_BHTK, k_BGTK, v_BGTK, is_causal=True, scale=softmax_scale, enable_gqa=grouped
    )


def attend_math(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BGTK: Float[Tensor, "B G T K"],
    v_BGTK: Float[Tensor, "B G T K"],
    softmax_scale: float,
) -> Float[Tensor, "B H T K"]:
    """Written out; the attention matrix is whole in memory."""
    group = q_BHTK.shape[1] // k_BGTK.shape[1]
    k_BHTK, v_BHTK = (t.repeat_interleave(group, dim=1) for t in (k_BGTK, v_BGTK))
    logits_BHTT = softmax_scale * q_BHTK @ k_BHTK.transpose(-2, -1)
    future_TT = torch.ones_like(logits_BHTT[0, 0], dtype=torch.bool).triu(1)
    weights_BHTT = logits_BHTT.masked_fill(future_TT, -math.inf).softmax(-1)
    return weights_BHTT.to(v_BHTK.dtype) @ v_BHTK


def build(options: Options, _shape: SlotShape) -> nn.Module:
    """Softmax attention fits every shape."""
    return Softmax(options)
