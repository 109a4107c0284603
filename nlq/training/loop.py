"""Training one run: the same batches for every arm of a seed, one row a step."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from nlq.core.run import Outcome, Sink, StepRow
from nlq.core.spec import RunSpec
from nlq.data.plan import Batch, RunData, rolling_hash
from nlq.models.transformer import token_losses
from nlq.training.checkpoint import TrainingState
from nlq.training.device import forward_context
from nlq.training.evaluate import evaluate
from nlq.training.optim import adamw, set_learning_rate
from nlq.training.schedule import learning_rate


class Keeper(Protocol):
    """Where a run's checkpoints are kept."""

    def due(self, step: int) -> bool:
        """Whether a checkpoint should be written before `step`."""

    def save(self, state: TrainingState, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Write one."""


class Requests(Protocol):
    """What others ask of a training loop, seen between steps."""

    def stop(self) -> bool:
        """Write a checkpoint and stop."""

    def checkpoint(self) -> bool:
        """Write a checkpoint and go on; asked for once."""


@dataclass
class Run:
    """One run in training: the model is trained in place by a resolved spec."""

    model: nn.Module
    data: RunData
    sink: Sink
    spec: RunSpec
    device: torch.device
    optimiser: torch.optim.Optimizer


def train(model: nn.Module, data: RunData, sink: Sink, spec: RunSpec, device: torch.device) -> Outcome:
    """Train `model` from its beginning, without checkpoints; see `proceed`."""
    return proceed(Run(model, data, sink, spec, device, adamw(model, spec.optim)), TrainingState())


def proceed(run: Run, state: TrainingState, keeper: Keeper | None = None, asked: Requests | None = None) -> Outcome:
    """Train from `state` to the planned last step; every update and evaluation goes to the sink.

    An evaluation at step k comes before update k; one at train.steps comes after all of them. Training stops as
    diverged at the first loss or gradient that is not finite, before it can touch the weights, or where the guard says
    so; and as interrupted, after a checkpoint, where that is asked for.
    """
    steps, evaluations = run.spec.train.steps, set(run.spec.eval_steps())
    while True:
        step = state.step
        stopping = asked is not None and asked.stop() and step < steps
        if keeper and (stopping or keeper.due(step) or (asked is not None and asked.checkpoint())):
            run.sink.flush()
            keeper.save(state, run.model, run.optimiser)
        if stopping:
            return Outcome(step, None, state.data_hash, interrupted=True)
        if step in evaluations:
            rows = evaluate(run.model, run.data.evaluation(step), run.spec, run.device, step, state.data_hash)
            for row in rows:
                run.sink.evaluation(row)
            if not all(math.isfinite(row.loss_nats) for row in rows):
                return Outcome(step, step, state.data_hash)
        if step == steps:
            return Outcome(step, None, state.data_hash)
        if _step(run, state):
            return Outcome(step, step, state.data_hash)


def _step(run: Run, state: TrainingState) -> bool:
    """One update, its row, and `state` moved on; whether training is gone."""
    began = time.perf_counter()
    batch = run.data.batch(state.step)
    state.data_hash = rolling_hash(state.data_hash, batch)
    loss, grad_norm, lr = _update(run, batch, state.step)
    run.sink.step(StepRow(state.step, loss, grad_norm, lr, 1000 * (time.perf_counter() - began)))
    if state.guard.gone(state.step, loss, run.spec) or not math.isfinite(grad_norm):
        return True
    state.step += 1
    return False


def _update(run: Run, batch: Batch, step: int) -> tuple[float, float, float]:
    """One update: the loss of the whole batch before it, the gradient's norm before clipping, the rate."""
    run.optimiser.zero_grad(set_to_none=True)
    loss = float(_accumulate(run.model, batch, run.spec, run.device))
    grad_norm = float(clip_grad_norm_(run.model.parameters(), run.spec.optim.clip))
    lr = learning_rate(step, run.spec.optim)
    if math.isfinite(loss) and math.isfinite(grad_norm):
        set_learning_rate(run.optimiser, lr)
        run.optimiser.step()
    return loss, grad_norm, lr


def _accumulate(model: nn.Module, batch: Batch, spec: RunSpec, device: torch.device) -> Tensor:
    """Gradients of the batch's mean loss, summed over micro-batches; returns that loss."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    for x_BT, y_BT in _micro_batches(batch, spec, device):
        with forward_context(spec, device):
            loss = token_losses(model, x_BT, y_BT).sum() / batch.x_BT.size
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total


def _micro_batches(batch: Batch, spec: RunSpec, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    size = spec.train.micro_batch or len(batch.x_BT)
    for first in range(0, len(batch.x_BT), size):
        rows = slice(first, first + size)
        yield torch.from_numpy(batch.x_BT[rows]).to(device), torch.from_numpy(batch.y_BT[rows]).to(device)
