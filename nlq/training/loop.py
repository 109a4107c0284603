"""Training one run: the same batches for every arm of a seed, one row a step."""

import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from nlq.core.run import Outcome, Sink, StepRow
from nlq.core.spec import RunSpec
from nlq.data.plan import Batch, RunData, rolling_hash
from nlq.models.transformer import token_losses
from nlq.training.device import forward_context
from nlq.training.evaluate import evaluate
from nlq.training.optim import adamw, set_learning_rate
from nlq.training.schedule import learning_rate


def train(model: nn.Module, data: RunData, sink: Sink, spec: RunSpec, device: torch.device) -> Outcome:
    """Train `model` in place by a resolved spec; every update and evaluation goes to `sink`.

    An evaluation at step k comes before update k; one at train.steps comes after all of them. Training stops at the
    first loss or gradient that is not finite, before it can touch the weights.
    """
    optimiser = adamw(model, spec.optim)
    evaluations = set(spec.eval_steps())
    data_hash = ""
    for step in range(spec.train.steps + 1):
        if step in evaluations:
            for row in evaluate(model, data.evaluation(step), spec, device, step, data_hash):
                sink.evaluation(row)
        if step == spec.train.steps:
            break
        began = time.perf_counter()
        batch = data.batch(step)
        data_hash = rolling_hash(data_hash, batch)
        loss, grad_norm, lr = _update(model, optimiser, batch, spec, device, step)
        sink.step(StepRow(step, loss, grad_norm, lr, 1000 * (time.perf_counter() - began)))
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            return Outcome(step, step, data_hash)
    return Outcome(spec.train.steps, None, data_hash)


def _update(
    model: nn.Module, optimiser: torch.optim.Optimizer, batch: Batch, spec: RunSpec, device: torch.device, step: int
) -> tuple[float, float, float]:
    """One update: the loss of the whole batch before it, the gradient's norm before clipping, the rate."""
    optimiser.zero_grad(set_to_none=True)
    loss = float(_accumulate(model, batch, spec, device))
    grad_norm = float(clip_grad_norm_(model.parameters(), spec.optim.clip))
    lr = learning_rate(step, spec.optim)
    if math.isfinite(loss) and math.isfinite(grad_norm):
        set_learning_rate(optimiser, lr)
        optimiser.step()
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
