"""The least that a step can take: its matrix products alone, their outputs ready in memory.

Read from the model's own modules: every linear map and the head make one product forward and two backward; attention
makes two forward and four backward, counted at the causal half: each query meets half of the keys. Nothing else of a
step is here: no norms, no softmax, no loss, no optimiser, no data.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nlq.core.spec import ModelSpec
from nlq.models.block import Attention
from nlq.models.build import build_on_meta

DRAWN = 2**16 + 1
"""Random numbers that operands are filled with: odd, so that no two rows are alike."""


class Product(NamedTuple):
    """`batch` products of rows × inner by inner × columns; what is transposed is stored the other way round."""

    batch: int
    rows: int
    inner: int
    columns: int
    left_transposed: bool = False
    right_transposed: bool = False

    @property
    def flops(self) -> int:
        """A multiplication and an addition each."""
        return 2 * self.batch * self.rows * self.inner * self.columns


class Ready(NamedTuple):
    """The operands of a product and where it goes, each with an axis of `batch` before its own where that is not 1."""

    left: Tensor
    right: Tensor
    out: Tensor

    def make(self) -> None:
        """Make the product."""
        multiply = torch.mm if self.out.dim() == 2 else torch.bmm
        multiply(self.left, self.right, out=self.out)


class Floor:
    """All products of one step, ready to be made."""

    def __init__(self, model: ModelSpec, rows: int, dtype: torch.dtype, device: torch.device) -> None:
        self.ready = [_ready(product, dtype, device) for product in products(model, rows)]
        self.nothing = torch.zeros((), device=device)

    @torch.no_grad()
    def step(self, _number: int) -> Tensor:
        """Make them all; returns a zero in place of a loss."""
        for product in self.ready:
            product.make()
        return self.nothing


def products(spec: ModelSpec, rows: int) -> Iterator[Product]:
    """The products of a training step of `rows` sequences, by a resolved spec."""
    model, tokens = build_on_meta(spec), rows * spec.context
    for module in model.modules():
        if isinstance(module, nn.Linear):
            yield from _linear(tokens, module.in_features, module.out_features)
        if isinstance(module, Attention):
            yield from _causal(rows * module.heads, spec.context, spec.width // spec.heads)
    if model.head is None:
        yield from _linear(tokens, spec.width, spec.vocab or 0)


def _linear(tokens: int, width_in: int, width_out: int) -> Iterator[Product]:
    """The output, the gradient by the input, the gradient by the weight, which is stored as out × in."""
    yield Product(1, tokens, width_in, width_out, right_transposed=True)
    yield Product(1, tokens, width_out, width_in)
    yield Product(1, width_out, tokens, width_in, left_transposed=True)


def _causal(sequences: int, context: int, width: int) -> Iterator[Product]:
    """Logits, mixed values; gradients by weights, values, queries and keys, over half of the keys."""
    half = max(1, context // 2)
    yield Product(sequences, context, width, half, right_transposed=True)
    yield Product(sequences, context, half, width)
    yield Product(sequences, context, width, half, right_transposed=True)
    yield Product(sequences, half, context, width, left_transposed=True)
    yield Product(sequences, context, half, width)
    yield Product(sequences, half, context, width, left_transposed=True)


def _ready(p: Product, dtype: torch.dtype, device: torch.device) -> Ready:
    draw = torch.randn(DRAWN, device=device).to(dtype)
    left = _operand(draw, p.batch, p.rows, p.inner, p.left_transposed)
    right = _operand(draw, p.batch, p.inner, p.columns, p.right_transposed)
    return Ready(left, right, torch.zeros((*left.shape[:-1], p.columns), dtype=dtype, device=device))


def _operand(draw: Tensor, batch: int, rows: int, columns: int, transposed: bool) -> Tensor:
    """Random numbers, the same ones again and again."""
    shape = (batch, columns, rows) if transposed else (batch, rows, columns)
    stored = draw.repeat(-(-batch * rows * columns // DRAWN))[: batch * rows * columns].view(shape)
    stored = stored.squeeze(0) if batch == 1 else stored
    return stored.transpose(-2, -1) if transposed else stored
