"""What a model costs, counted from its own modules on PyTorch's meta device: nothing is allocated."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from nlq.core.spec import ModelSpec
from nlq.models.build import build_on_meta
from nlq.models.transformer import Transformer


class Cost(NamedTuple):
    """Exact counts of one model.

    `non_embedding_params` leaves out token embedding and positions (Kaplan et al. 2020); `flops_per_token` are the
    matrix products of a training step, forward and twice that backward, attention uncut by the causal mask (Chowdhery
    et al. 2022, appendix B); `activation_bytes` is what one float32 sequence keeps for its backward pass.
    """

    total_params: int
    non_embedding_params: int
    flops_per_token: int
    activation_bytes: int


def cost(spec: ModelSpec) -> Cost:
    """The cost of the model of a resolved spec."""
    model = build_on_meta(spec)
    tokens_BT = torch.zeros(1, spec.context, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        model(tokens_BT)
    activation_bytes = _kept_for_backward(model, tokens_BT)
    total, embedding = count_parameters(model), count_parameters(model.embedding) + count_parameters(model.positions)
    return Cost(total, total - embedding, 3 * counter.get_total_flops() // spec.context, activation_bytes)


def count_parameters(module: nn.Module) -> int:
    """Numbers in all distinct parameters; a shared tensor counts once."""
    return sum(parameter.numel() for parameter in module.parameters())


def training_bytes(one: Cost, micro_batch: int) -> int:
    """Memory of one training process beyond PyTorch itself: weights, gradients and two moments in float32, bfloat16
    copies, and the activations of one micro-batch."""
    return 18 * one.total_params + micro_batch * one.activation_bytes


def spread_bytes(one: Cost, devices: int, number_bytes: int) -> int:
    """Memory that each device of a sharded run saves: the others' parts of weights, gradients and two moments, less
    embedding and positions with their gradients, which are gathered whole for every micro-batch."""
    gathered = 2 * (one.total_params - one.non_embedding_params)
    return number_bytes * (4 * one.total_params * (devices - 1) // devices - gathered)


def _kept_for_backward(model: Transformer, tokens_BT: Tensor) -> int:
    sizes: dict[int, int] = {}
    weights = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            sizes[storage._cdata] = storage.nbytes()
        return tensor

    x_BTD = model.embedding(tokens_BT).detach().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        h_BTD = model.hidden(x_BTD)
    del h_BTD
    return sum(sizes.values())
