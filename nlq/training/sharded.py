"""The engine of a run whose weights, gradients and optimiser state are spread over its devices (PyTorch's FSDP2).

Every rank keeps one of N parts of each parameter, cut along its first axis, in the masters' type, and moves only that.
A matrix of a block is gathered where a product reads it, in the type that the product is made in, and let go; its
gradient is summed over the ranks in the masters' type, each rank keeping its part, after every micro-batch. Embedding,
positions, gains and head are gathered together, and stay whole from the beginning of a micro-batch to its end.

Losses and gradients are those of `engine.py` but for the order of sums. Whatever reads whole weights (an update, an
evaluation, a checkpoint) needs all ranks at once.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from nlq.data.plan import Batch
from nlq.models.layers import Linear
from nlq.models.transformer import Transformer
from nlq.training import head, ranks
from nlq.training.device import parameter_dtype
from nlq.training.engine import Engine, Update


class ShardedEngine(Engine):
    """A model in training, this rank's part of it. All ranks must have joined.

    Every method is called on all ranks at once. Raises PeerGoneError where one of them is gone.
    """

    is_spread = True

    def update(self, batch: Batch, step: int) -> Update:
        """One update, as `Engine.update`."""
        with ranks.peers():
            return super().update(batch, step)

    @torch.no_grad()
    def token_losses(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        """Cross-entropy of every next token in nats [B, T], the same on all ranks."""
        with ranks.peers():
            losses_N: Tensor = self._losses(x_BT, y_BT)
        return losses_N.view(y_BT.shape)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, by name: on rank 0, whole and in the CPU's memory."""
        kept = {}
        for place, part in super().tensors().items():
            with ranks.peers():
                whole = self._whole(place, part)
            if ranks.is_first():
                kept[place] = whole.cpu()
        return kept

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take this rank's part of the state that `tensors` of any engine gave."""
        super().load({place: self._part(place, whole) for place, whole in tensors.items()})

    def _lay_out(self) -> None:
        """Cut every parameter; the model comes from the CPU's memory and never is on the device as a whole."""
        model, is_bf16 = self.model.to(parameter_dtype(self.spec)), self.spec.train.precision == "bf16"
        mesh = init_device_mesh(self.device.type, (self.spec.train.devices,))
        lowered = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if is_bf16 else MixedPrecisionPolicy()
        for module in model.blocks.modules():
            if isinstance(module, Linear):
                fully_shard(module, mesh=mesh, mp_policy=lowered)
        self._losses = _Losses(model, torch.bfloat16 if is_bf16 else None)
        fully_shard(self._losses, mesh=mesh)
        _sum_gradients(self._losses)
        self._parameters = {name: cast(DTensor, p.detach()) for name, p in model.named_parameters()}
        self.masters = {name: nn.Parameter(whole.to_local()) for name, whole in self._parameters.items()}
        self._give_gradients()

    def _give_gradients(self) -> None:
        """One buffer for the gradients of all parts, to which PyTorch adds what it has summed over the ranks."""
        sizes = [part.numel() for part in self.masters.values()]
        self._gradients = torch.zeros(sum(sizes), dtype=parameter_dtype(self.spec), device=self.device)
        self._gradient = {}
        for (name, part), flat in zip(self.masters.items(), torch.split(self._gradients, sizes), strict=True):
            part.grad = self._gradient[name] = flat.view(part.shape)
            self.model.get_parameter(name).grad = self._as_whole(name, part.grad)

    def _micro_batch(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        loss: Tensor = self._losses(x_BT, y_BT)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _sum_up(self, loss: Tensor) -> None:
        ranks.sum_up(loss)

    def _norm(self) -> Tensor:
        squared = super()._norm().square()
        ranks.sum_up(squared)
        return squared.sqrt()

    def _cast(self) -> None:
        """Nothing is kept in bfloat16."""

    def _as_whole(self, name: str, part: Tensor) -> DTensor:
        """A tensor of the shape of a parameter, of which this rank has a part."""
        like = self._parameters[name]
        return DTensor.from_local(
            part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )

    def _whole(self, place: str, part: Tensor) -> Tensor:
        return self._as_whole(_parameter_of(place), part).full_tensor() if part.dim() else part

    def _part(self, place: str, whole: Tensor) -> Tensor:
        if not whole.dim():
            return whole
        like = self._parameters[_parameter_of(place)]
        cut = distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
        return cut.to_local().clone()  # what is left of the whole can go


class _Losses(nn.Module):
    """From tokens to the loss of all or, without a gradient, to those of each. `products` is the head's type."""

    def __init__(self, model: Transformer, products: torch.dtype | None) -> None:
        super().__init__()
        self.model, self.products = model, products

    def forward(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        h_ND = self.model.hidden(self.model.embedding(x_BT)).flatten(0, 1)
        weight_VD = self.model.head_weight
        if torch.is_grad_enabled():
            loss: Tensor = _HeadLoss.apply(h_ND, weight_VD, y_BT.flatten(), self.products)  # type: ignore[no-untyped-call]
            return loss
        return head.losses(h_ND, weight_VD.to(self.products), y_BT.flatten())


class _HeadLoss(torch.autograd.Function):
    """The summed loss in chunks, as the end of a graph: its gradients are made with it, and its own is one."""

    @staticmethod
    def forward(ctx: Any, h_ND: Tensor, weight_VD: Tensor, y_N: Tensor, products: torch.dtype | None) -> Tensor:
        slope_VD = torch.zeros_like(weight_VD)
        loss, slope_ND = head.loss_and_gradients(h_ND, weight_VD.to(products), y_N, slope_VD)
        ctx.save_for_backward(slope_ND, slope_VD)
        return loss

    @staticmethod
    def backward(ctx: Any, _one: Tensor) -> tuple[Tensor | None, ...]:
        return (*ctx.saved_tensors, None, None)


def _sum_gradients(root: nn.Module) -> None:
    """Sums over ranks instead of means, which the engine divides by tokens itself."""
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _parameter_of(place: str) -> str:
    """The parameter of a tensor of the state: model.NAME, or optimiser.NAME.KEY."""
    kind, _, rest = place.partition(".")
    return rest if kind == "model" else rest.rpartition(".")[0]
