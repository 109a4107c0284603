"""Causal attention in bfloat16 products on a CPU, where PyTorch's fused kernel is several times slower than these.

Queries are taken in blocks; each block reads the keys up to its own end only, so that little more than the causal
half of the logits is computed. Shapes: N = B·H sequences and heads, T time, K head width; S positions of a block,
P positions up to its end.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

BLOCK = 128


class BlockedAttention(torch.autograd.Function):
    """softmax(s Q K^T) V over past and present: logits and softmax in float32, weights in the inputs' type."""

    @staticmethod
    def forward(ctx: Any, q_NTK: Tensor, k_NTK: Tensor, v_NTK: Tensor, softmax_scale: float) -> Tensor:
        """Mixed values [N, T, K]."""
        weights, mixed = [], []
        for start, end in _blocks(q_NTK.shape[1]):
            w_NSP = _weights(q_NTK[:, start:end], k_NTK[:, :end], softmax_scale).to(v_NTK.dtype)
            weights.append(w_NSP)
            mixed.append(torch.bmm(w_NSP, v_NTK[:, :end]))
        ctx.save_for_backward(q_NTK, k_NTK, v_NTK, *weights)
        ctx.softmax_scale = softmax_scale
        return torch.cat(mixed, 1)

    @staticmethod
    def backward(ctx: Any, g_NTK: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Gradients of the three inputs; those of keys and values are summed over blocks in float32."""
        q_NTK, k_NTK, v_NTK, *weights = ctx.saved_tensors
        dq, dk, dv = [], torch.zeros_like(_wide(k_NTK)), torch.zeros_like(_wide(v_NTK))
        for (start, end), w_NSP in zip(_blocks(q_NTK.shape[1]), weights, strict=True):
            g_NSK = g_NTK[:, start:end]
            dw_NSP = torch.bmm(g_NSK, v_NTK[:, :end].transpose(1, 2))
            dl_NSP = _through_softmax(dw_NSP, w_NSP, ctx.softmax_scale)
            dq.append(torch.bmm(dl_NSP, k_NTK[:, :end]))
            dk[:, :end] += _wide(torch.bmm(dl_NSP.transpose(1, 2), q_NTK[:, start:end]))
            dv[:, :end] += _wide(torch.bmm(w_NSP.transpose(1, 2), g_NSK))
        return torch.cat(dq, 1), dk.to(k_NTK.dtype), dv.to(v_NTK.dtype), None


def attend_blocks(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, softmax_scale: float) -> Tensor:
    """As `attend_fused` of softmax.py; each group of H/G query heads shares one key/value head."""
    group = q_BHTK.shape[1] // k_BGTK.shape[1]
    k_BHTK, v_BHTK = (t.repeat_interleave(group, dim=1) if group > 1 else t for t in (k_BGTK, v_BGTK))
    q_NTK, k_NTK, v_NTK = (t.flatten(0, 1) for t in (q_BHTK, k_BHTK, v_BHTK))
    mixed: Tensor = BlockedAttention.apply(q_NTK, k_NTK, v_NTK, softmax_scale)  # type: ignore[no-untyped-call]
    return mixed.view(q_BHTK.shape)


def _blocks(context: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + BLOCK, context)) for start in range(0, context, BLOCK))


def _weights(q_NSK: Tensor, k_NPK: Tensor, softmax_scale: float) -> Tensor:
    """Softmax over the past and present of a block's positions, the last of its keys' [N, S, P]."""
    logits_NSP = torch.bmm(q_NSK, k_NPK.transpose(1, 2))
    logits_NSP = _wide(logits_NSP) * softmax_scale
    length, own = k_NPK.shape[1], q_NSK.shape[1]
    future_SS = torch.full((own, own), -math.inf, device=logits_NSP.device).triu(1)
    logits_NSP[:, :, length - own :] += future_SS
    return logits_NSP.softmax(-1)


def _through_softmax(dw_NSP: Tensor, w_NSP: Tensor, softmax_scale: float) -> Tensor:
    """The gradient by the products q k, from that by the weights: s w (dw − Σ w dw)."""
    w, dw = _wide(w_NSP), _wide(dw_NSP)
    dl_NSP = w * (dw - (w * dw).sum(-1, keepdim=True))
    return (dl_NSP * softmax_scale).to(w_NSP.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
