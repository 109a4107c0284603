"""What is measured: each contender's work on one model, as a function that takes a step and does not wait for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nlq.bench.floor import Floor
from nlq.bench.reference import Reference, tune
from nlq.bench.sizes import Size, spec_of
from nlq.data.plan import Batch, WindowsData, rolling_hash
from nlq.models.build import build, initialise
from nlq.training.device import keep_freed_memory, open_device
from nlq.training.engine import Engine

FLOOR, PLAIN, TUNED, NLQ = "floor", "plain", "tuned", "nlq"

Work = Callable[[int], Tensor]
"""A step by its number; numbers that the device may still be computing."""


@dataclass(frozen=True)
class Order:
    """What one process measures; `tokens` is a file of uint16. Crosses to the process as JSON."""

    contender: str
    size: Size
    tokens: str
    device: str
    threads: int
    precision: str
    compiled: bool = True
    variant: str = "baseline"


class Contender(NamedTuple):
    """Its works by name; `how` says what it has settled for, once it has taken a step."""

    works: Mapping[str, Work]
    how: Callable[[], str]


def contender(order: Order) -> Contender:
    """Make what an order asks for, on its device."""
    if order.contender == NLQ:
        return _nlq(order)
    torch.set_num_threads(order.threads)
    if order.contender != PLAIN:
        keep_freed_memory()
    device = torch.device(order.device)
    spec = spec_of(order.size, order.precision)
    if order.contender == FLOOR:
        floor = Floor(spec.model, order.size.rows, _dtype(order), device)
        return Contender({"train": floor.step}, lambda: f"matrix products alone, {order.precision}")
    reference = Reference(order.size, Path(order.tokens), spec.optim, device, fused=order.contender == TUNED)
    how = "eager float32" if order.contender == PLAIN else tune(reference, compiled=order.compiled)
    return Contender({"train": reference.step}, lambda: how)


def _nlq(order: Order) -> Contender:
    """nlq's own step as its loop takes it, and its forward passes."""
    device = open_device(order.device, order.threads).torch_device
    spec = spec_of(order.size, order.precision, order.variant, compiled=order.compiled)
    model, remarks = build(spec.model), list[str]()
    initialise(model, spec.seed)
    engine = Engine(model, spec, device, remarks.append)
    tokens = np.memmap(order.tokens, dtype=np.uint16, mode="r")
    data = _windows(tokens, order.size)
    works = {"train": _Training(engine, data).step, **_inference(engine, data.batch(0), order)}
    fate = "compiled" if order.compiled else "not compiled"
    return Contender(works, lambda: ", ".join([order.variant, order.precision, *(remarks or [fate])]))


def _windows(tokens: "np.memmap[Any, np.dtype[np.uint16]]", size: Size) -> WindowsData:
    """A run's data; nothing is held out."""
    none = np.empty(0, np.uint16)
    return WindowsData(tokens, none, none, context=size.context, rows=size.rows, seed=0, eval_windows=0)


class _Training:
    """The engine's step with its batch and the hash of all batches."""

    def __init__(self, engine: Engine, data: WindowsData) -> None:
        self.engine, self.data, self.hash = engine, data, ""

    def step(self, number: int) -> Tensor:
        """Loss and norm before the update."""
        batch = self.data.batch(number)
        self.hash = rolling_hash(self.hash, batch)
        update = self.engine.update(batch, number)
        return torch.stack([update.loss, update.grad_norm.double()])


def _inference(engine: Engine, batch: Batch, order: Order) -> Mapping[str, Work]:
    """One sequence: the losses of a whole context, and the next token after it. There is no cache: the token costs
    a forward pass over all that came before."""
    model, device = engine.model, torch.device(order.device)
    x_1T, y_1T = (torch.from_numpy(tokens[:1]).to(device) for tokens in batch)
    weight_VD = model.head_weight.detach().to(_dtype(order))

    @torch.no_grad()
    def decode(_number: int) -> Tensor:
        h_1D = model.hidden(model.embedding(x_1T))[:, -1]
        return functional.linear(h_1D.to(weight_VD.dtype), weight_VD).max()

    return {"prefill": lambda _number: engine.token_losses(x_1T, y_1T).mean(), "decode": decode}


def _dtype(order: Order) -> torch.dtype:
    return torch.bfloat16 if order.precision == "bf16" else torch.float32
