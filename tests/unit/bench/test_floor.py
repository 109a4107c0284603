"""The floor holds the products that the model's step makes, no more and no fewer."""

import pytest
import torch

from nlq.bench.floor import Floor, products
from nlq.bench.sizes import SIZES, Size, spec_of
from nlq.models.cost import cost
from nlq.models.variants import variants

CPU = torch.device("cpu")
ODD = Size("odd", 2, 3, 48, 10, 5, 77)


def attention_flops(size: Size) -> int:
    """Of logits and mixed values, forward and twice that backward, uncut by the causal mask."""
    return 3 * 2 * 2 * size.layers * size.rows * size.context**2 * size.width


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("size", [*SIZES.values(), ODD], ids=lambda size: size.name)
def test_flops_are_those_of_the_count_with_half_of_attention(size: Size, variant: str) -> None:
    model = spec_of(size, "bf16", variant).model
    found = sum(product.flops for product in products(model, size.rows))
    assert found == cost(model).flops_per_token * size.tokens - attention_flops(size) // 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_product_is_made(dtype: torch.dtype) -> None:
    model = spec_of(ODD, "bf16").model
    floor = Floor(model, ODD.rows, dtype, CPU)
    assert float(floor.step(0)) == 0.0
    for product, ready in zip(products(model, ODD.rows), floor.ready, strict=True):
        assert ready.out.numel() == product.batch * product.rows * product.columns
        assert ready.out.dtype == dtype
        torch.testing.assert_close(ready.out, ready.left @ ready.right)
        assert ready.out.abs().max() > 0


def test_transposed_operands_lie_as_training_has_them() -> None:
    """A weight lies as out × in, an activation as tokens × width: the products read them through views."""
    ready = Floor(spec_of(ODD, "bf16").model, ODD.rows, torch.float32, CPU).ready
    forward, by_input, by_weight = [one for one in ready if one.out.dim() == 2][:3]
    assert not forward.right.is_contiguous()
    assert by_input.right.is_contiguous()
    assert not by_weight.left.is_contiguous()
    assert all(one.out.is_contiguous() for one in (forward, by_input, by_weight))
