"""One update at a time, as quick as the device allows.

Weights, gradients and what the products read lie in three flat buffers, so that casting, clipping and the exchange
between processes are single operations:

    masters    every parameter, float32 (float64 where asked): what the optimiser moves and a checkpoint keeps
    shadows    bfloat16 copies of the matrices that products read, cast once a step; none in other precisions
    gradients  of the loss summed over the batch's tokens, in the masters' type, also where products are bfloat16

Compiled code is used only where it gives the loss and the gradient norm that the code as written gives.

Where a run has several devices (`training/ranks.py`), each works on its share of a batch, and gradients and loss are
summed over all of them once, after the last micro-batch: everything after that is the same on all.

Token rows are looked up, and the head's loss is taken, outside the graph that autograd keeps: the gradients of the
largest matrix go straight into their buffer. Shapes as in `models/layers.py`; N is B·T.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import get_total_norm

from nlq.core.spec import RunSpec
from nlq.data.plan import Batch
from nlq.models.layers import Linear
from nlq.models.transformer import Transformer
from nlq.training import head, ranks
from nlq.training.device import parameter_dtype
from nlq.training.optim import optimiser, set_learning_rate
from nlq.training.schedule import learning_rate

EMBEDDING, HEAD = "embedding.weight", "head.weight"

AGREEMENT = {"bf16": 1e-2, "float32": 1e-4, "float64": 1e-9}
"""How near compiled code must come to the code as written, relative, in loss and gradient norm."""

COMPILE_FROM_FLOPS = {"cpu": 5e13, "cuda": 1e16}
"""Planned work of a device from which a run gains more by compiled code than compiling costs: some minutes of it."""


Hidden = Callable[[Tensor], Tensor]
"""From the embedded tokens of a micro-batch to its last hidden states."""


class Update(NamedTuple):
    """The mean loss of the whole batch before the update (nats), the gradient's norm before clipping, the rate.

    The first two are tensors of one number on the device: reading them waits for it.
    """

    loss: Tensor
    grad_norm: Tensor
    lr: float


class Engine:
    """A model in training. The model given computes with the engine's buffers from then on."""

    is_spread = False
    """Whether each device of a run has a part of the state, so that evaluating and saving take all of them."""

    def __init__(
        self, model: Transformer, spec: RunSpec, device: torch.device, tell: Callable[[str], None] | None = None
    ) -> None:
        """`tell` takes a sentence about compiled code that is not used."""
        self.model, self.spec, self.device = model, spec, device
        self._lay_out()
        self.optimiser = optimiser(self.masters, spec.optim)
        self._scales_itself = _scales_gradients(self.optimiser) and self._gradients.dtype == torch.float32
        self._gone = torch.zeros((), device=device)
        self._hidden: Hidden = model.hidden
        self._tell = tell or (lambda _: None)
        self._to_check = is_compiled(spec, self._gradients.numel(), device)

    def update(self, batch: Batch, step: int) -> Update:
        """One update. From the first loss or norm on that is not finite, the weights stay as they are."""
        tokens, share = batch.x_BT.size, ranks.share(batch)
        if self._to_check:
            self._compile(share)
        loss = self._accumulate(share)
        self._sum_up(loss)
        loss, grad_norm = loss / tokens, self._norm() / tokens
        self._gone.logical_or_(~torch.isfinite(loss + grad_norm))
        lr = learning_rate(step, self.spec.optim)
        set_learning_rate(self.optimiser, lr)
        self._move((self.spec.optim.clip / (grad_norm + 1e-6)).clamp(max=1.0) / tokens)
        return Update(loss, grad_norm, lr)

    @torch.no_grad()
    def token_losses(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        """Cross-entropy of every next token in nats [B, T], without a gradient."""
        h_BTD = self.model.hidden(self.model.embedding(x_BT))
        return head.losses(h_BTD.flatten(0, 1), self._head_weight, y_BT.flatten()).view(y_BT.shape)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next update depends on, by name."""
        kept = {f"model.{name}": master.detach() for name, master in self.masters.items()}
        for name, master in self.masters.items():
            for key, value in self.optimiser.state.get(master, {}).items():
                kept[f"optimiser.{name}.{key}"] = value
        return kept

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the state that `tensors` gave."""
        for name, master in self.masters.items():
            master.copy_(tensors[f"model.{name}"])
        for place, value in tensors.items():
            if place.startswith("optimiser."):
                name, _, key = place.removeprefix("optimiser.").rpartition(".")
                on = self.device if value.dim() or self.device.type == "cuda" else torch.device("cpu")
                self.optimiser.state[self.masters[name]][key] = value.to(on)
        self._cast()

    def _lay_out(self) -> None:
        """Move all weights into the flat buffer, those with a shadow first, and let the model read from it."""
        parameters = dict(self.model.to(self.device, parameter_dtype(self.spec)).named_parameters())
        lowered = _lowered(self.model) if self.spec.train.precision == "bf16" else []
        shadowed = [*lowered, EMBEDDING] if lowered and self.model.head is None else lowered
        order = [*shadowed, *(name for name in parameters if name not in set(shadowed))]
        self._places = _places({name: parameters[name].shape for name in order})
        self._masters = torch.cat([parameters[name].detach().flatten() for name in order])
        self._gradients = torch.zeros_like(self._masters)
        self._shadows = self._masters[: sum(parameters[name].numel() for name in shadowed)].to(torch.bfloat16)
        weights, gradients = self._by_name(self._masters), self._by_name(self._gradients)
        shadows = self._by_name(self._shadows)
        self._leaves = {name: nn.Parameter(shadows[name]) for name in lowered if name != HEAD}
        for name, leaf in self._leaves.items():
            self.model.get_submodule(name.removesuffix(".weight")).weight = leaf
        self.masters = {name: nn.Parameter(weights[name]) for name in parameters}
        for name, master in self.masters.items():
            master.grad = gradients[name]
            if name not in self._leaves:
                module, _, attribute = name.rpartition(".")
                setattr(self.model.get_submodule(module), attribute, master)
        self._gradient = gradients
        head_name = EMBEDDING if self.model.head is None else HEAD
        self._head_weight = shadows.get(head_name, weights[head_name])
        self._head_gradient = gradients[head_name]

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat buffer, of as many parameters as it holds."""
        held = {name: place for name, place in self._places.items() if place.start + place.shape.numel() <= len(flat)}
        return {name: flat[p.start : p.start + p.shape.numel()].view(p.shape) for name, p in held.items()}

    def _compile(self, batch: Batch) -> None:
        """Use compiled code from now on, if it agrees on this batch, on every device, with the code as written."""
        self._to_check = False
        written, compiled = self.model.hidden, torch.compile(self.model.hidden, dynamic=False)
        reason = self._disagreement(batch, written, compiled)
        is_used = ranks.all_say(reason is None, self.device)
        self._hidden = compiled if is_used else written
        if not is_used:
            self._tell(f"not compiled: {reason or 'another device of this run cannot use it'}")

    def _disagreement(self, batch: Batch, written: Hidden, compiled: Hidden) -> str | None:
        """Why compiled code cannot be used, as far as this device knows."""
        try:
            found = [self._loss_and_norm(batch, hidden) for hidden in (written, compiled)]
            torch.testing.assert_close(found[1], found[0], rtol=AGREEMENT[self.spec.train.precision], atol=0.0)
        except Exception as error:  # noqa: BLE001 - whatever a compiler fails of, the run goes on without it
            return next(iter(str(error).strip().splitlines()), type(error).__name__)
        return None

    def _loss_and_norm(self, batch: Batch, hidden: Hidden) -> Tensor:
        self._hidden = hidden
        loss = self._accumulate(Batch(*(rows[: self._rows(batch)] for rows in batch)))
        return torch.stack([loss, self._norm().double()])

    def _sum_up(self, loss: Tensor) -> None:
        """Sum the loss and the gradients over all devices of the run, in place."""
        ranks.sum_up(self._gradients, loss)

    def _norm(self) -> Tensor:
        """The norm of all gradients."""
        return get_total_norm(self._gradient.values(), foreach=True)

    def _accumulate(self, batch: Batch) -> Tensor:
        """Gradients of the summed loss of this device's sequences; returns that loss."""
        self._gradients.zero_()
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for x_BT, y_BT in self._micro_batches(batch):
            total += self._micro_batch(x_BT, y_BT)
        return total

    def _micro_batches(self, batch: Batch) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets; copied to a GPU beside its work."""
        size, on_gpu = self._rows(batch), self.device.type == "cuda"
        for first in range(0, len(batch.x_BT), size):
            rows = [torch.from_numpy(tokens_BT[first : first + size]) for tokens_BT in batch]
            x_BT, y_BT = (r.pin_memory().to(self.device, non_blocking=True) if on_gpu else r for r in rows)
            yield x_BT, y_BT

    def _rows(self, batch: Batch) -> int:
        return self.spec.train.micro_batch or len(batch.x_BT)

    def _micro_batch(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        x_BTD = functional.embedding(x_BT, self.masters[EMBEDDING].detach()).requires_grad_()
        h_BTD = self._hidden(x_BTD)
        loss, slope_ND = self._head_loss(h_BTD.detach().flatten(0, 1), y_BT.flatten())
        h_BTD.backward(slope_ND.view_as(h_BTD))  # type: ignore[no-untyped-call]
        assert x_BTD.grad is not None
        with torch.no_grad():
            self._gradient[EMBEDDING].index_add_(0, x_BT.flatten(), x_BTD.grad.flatten(0, 1))
            self._collect()
        return loss

    @torch.no_grad()
    def _head_loss(self, h_ND: Tensor, y_N: Tensor) -> tuple[Tensor, Tensor]:
        return head.loss_and_gradients(h_ND, self._head_weight, y_N, self._head_gradient)

    def _collect(self) -> None:
        """Add the gradients of bfloat16 weights to the buffer, which others are written to at once."""
        for name, leaf in self._leaves.items():
            assert leaf.grad is not None
            head.add(self._gradient[name], leaf.grad)
            leaf.grad = None

    @torch.no_grad()
    def _move(self, factor: Tensor) -> None:
        """Step along the gradients times `factor`, unless training is gone."""
        if self._scales_itself:
            vars(self.optimiser).update(grad_scale=(1 / factor).float(), found_inf=self._gone)
        elif self._gone:
            return
        else:
            self._gradients.mul_(factor)
        self.optimiser.step()
        self._cast()

    def _cast(self) -> None:
        self._shadows.copy_(self._masters[: len(self._shadows)])


class _Place(NamedTuple):
    start: int
    shape: torch.Size


def _places(shapes: Mapping[str, torch.Size]) -> dict[str, _Place]:
    places, start = {}, 0
    for name, shape in shapes.items():
        places[name] = _Place(start, shape)
        start += shape.numel()
    return places


def _lowered(model: Transformer) -> list[str]:
    """Weights of which only a bfloat16 copy is read: the matrices of products."""
    return [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Linear)]


def _scales_gradients(optimiser: torch.optim.Optimizer) -> bool:
    """Whether it divides gradients by `grad_scale`, and stays still where `found_inf` is 1, in its own pass."""
    return isinstance(optimiser, torch.optim.AdamW) and bool(optimiser.defaults["fused"])


def is_compiled(spec: RunSpec, parameters: int, device: torch.device) -> bool:
    planned = 6 * parameters * spec.train.steps * spec.train.batch_tokens // spec.train.devices
    long_enough = planned >= COMPILE_FROM_FLOPS[device.type]
    wished = spec.train.compile == "always" or (spec.train.compile == "auto" and long_enough)
    return wished and not spec.train.sharded
