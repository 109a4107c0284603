"""The loss of the head, over chunks of rows: the logits of a batch are never whole in memory.

Shapes: N rows (sequences × positions), D model width, V vocabulary. Rows of a chunk keep N's letter.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

CHUNK_LOGITS = 2**25
"""Logits that are in memory at a time: 64 MiB in bfloat16."""

CACHED_LOGITS = 2**20
"""Logits whose softmax is taken at a time on a CPU: 4 MiB of float32."""

SUMMED = 2**22
"""Numbers of the weight's gradient that are made at a time: 16 MiB of float32."""


def losses(h_ND: Tensor, weight_VD: Tensor, y_N: Tensor) -> Tensor:
    """Cross-entropy of every row in nats [N], in at least float32; no gradient."""
    parts = [_cross_entropy(h, weight_VD, y) for h, y in _chunks(h_ND, weight_VD, y_N)]
    return torch.cat(parts)


def loss_and_gradients(h_ND: Tensor, weight_VD: Tensor, y_N: Tensor, into_VD: Tensor) -> tuple[Tensor, Tensor]:
    """The summed loss, and its gradient by `h_ND` [N, D]; that by the weight is added to `into_VD`.

    Products are made in the weight's type, the softmax and the sums in at least float32.
    """
    total = torch.zeros((), dtype=torch.float64, device=h_ND.device)
    parts = []
    for h, y in _chunks(h_ND, weight_VD, y_N):
        logits = functional.linear(h, weight_VD)
        total += _to_softmax_gradient(logits, y)
        parts.append((logits @ weight_VD).to(h_ND.dtype))
        _add_product(into_VD, logits.t(), h)
    return total, torch.cat(parts) if len(parts) > 1 else parts[0]


def _to_softmax_gradient(logits_NV: Tensor, y_N: Tensor) -> Tensor:
    """The summed cross-entropy. `logits_NV` becomes its own gradient, softmax minus one-hot.

    A few rows at a time on a CPU, so that they stay in its cache.
    """
    wide = _at_least_float32(logits_NV.dtype)
    rows = max(1, CACHED_LOGITS // logits_NV.shape[1]) if logits_NV.device.type == "cpu" else len(logits_NV)
    total = torch.zeros((), dtype=torch.float64, device=logits_NV.device)
    for first in range(0, len(logits_NV), rows):
        part, y_N1 = logits_NV[first : first + rows], y_N[first : first + rows, None]
        log = functional.log_softmax(part, -1, dtype=wide)
        total -= log.gather(1, y_N1).sum()
        part.copy_(log.exp_().scatter_add_(1, y_N1, log.new_full(y_N1.shape, -1.0)))
    return total


def _add_product(into: Tensor, a: Tensor, b: Tensor) -> None:
    """into += a @ b, the sum in the type of `into`. Where that is another type, some rows at a time."""
    if into.dtype == a.dtype:
        into.addmm_(a, b)
        return
    rows = max(1, SUMMED // into.shape[1])
    for first in range(0, len(into), rows):
        add(into[first : first + rows], a[first : first + rows] @ b)


def add(into: Tensor, part: Tensor) -> None:
    """into += part. Where the types differ, the sum alone takes a CPU five times as long as a cast before it."""
    into.add_(part.to(into.dtype))


def _cross_entropy(h_ND: Tensor, weight_VD: Tensor, y_N: Tensor) -> Tensor:
    logits_NV = functional.linear(h_ND, weight_VD)
    wide = logits_NV.to(_at_least_float32(logits_NV.dtype))
    return functional.cross_entropy(wide, y_N, reduction="none")


def _chunks(h_ND: Tensor, weight_VD: Tensor, y_N: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows in the weight's type with their targets, as even in size as can be."""
    count = -(-len(h_ND) * len(weight_VD) // CHUNK_LOGITS)
    rows = -(-len(h_ND) // max(1, count))
    for first in range(0, len(h_ND), rows):
        yield h_ND[first : first + rows].to(weight_VD.dtype), y_N[first : first + rows]


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.itemsize > 4 else torch.float32
