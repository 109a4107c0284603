"""Training one run: the same batches for every arm of a seed, one row a step."""

import math
import time
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple, Protocol

import torch

from nlq.core.run import Outcome, Sink, StepRow
from nlq.core.spec import RunSpec
from nlq.data.plan import RunData, rolling_hash
from nlq.models.transformer import Transformer
from nlq.training import ranks
from nlq.training.checkpoint import TrainingState
from nlq.training.engine import Engine, Update
from nlq.training.evaluate import evaluate
from nlq.training.ranks import Word

READ_EVERY = {"cpu": 1, "cuda": 16}
"""Steps whose numbers are read together: reading waits for the device, which should have work in the meantime."""


class Keeper(Protocol):
    """Where a run's checkpoints are kept."""

    def due(self, step: int) -> bool:
        """Whether a checkpoint should be written before `step`."""

    def save(self, state: TrainingState, engine: Engine) -> None:
        """Write one."""


class Requests(Protocol):
    """What others ask of a training loop, seen between steps."""

    def stop(self) -> bool:
        """Write a checkpoint and stop."""

    def checkpoint(self) -> bool:
        """Write a checkpoint and go on; asked for once."""


class _Unread(NamedTuple):
    """A step whose numbers the device may still be computing; `data_hash` covers its batch."""

    step: int
    update: Update
    data_hash: str
    began: float


@dataclass
class Run:
    """One run in training: the engine's model is trained in place by a resolved spec."""

    engine: Engine
    data: RunData
    sink: Sink
    spec: RunSpec
    unread: list[_Unread] = field(default_factory=list)


def train(model: Transformer, data: RunData, sink: Sink, spec: RunSpec, device: torch.device) -> Outcome:
    """Train `model` from its beginning, without checkpoints; see `proceed`."""
    return proceed(Run(Engine(model, spec, device), data, sink, spec), TrainingState())


def proceed(run: Run, state: TrainingState, keeper: Keeper | None = None, asked: Requests | None = None) -> Outcome:
    """Train from `state` to the planned last step; every update and evaluation goes to the sink.

    An evaluation at step k comes before update k; one at train.steps comes after all of them. Training stops as
    diverged at the first loss or gradient that is not finite, before it can touch the weights, or where the guard says
    so; and as interrupted, after a checkpoint, where that is asked for. Other ranks of the run `follow`.
    """
    outcome = _proceed(run, state, keeper, asked)
    _say(Word.END, run)
    return outcome


def follow(engine: Engine, data: RunData, step: int) -> None:
    """Take part in a run from `step` on, as a further device; rank 0 records, and decides what all do together."""
    updates = repeat(Word.UPDATE, engine.spec.train.steps - step)
    for word in iter(ranks.first_says, Word.END) if engine.is_spread else updates:
        if word == Word.UPDATE:
            engine.update(data.batch(step), step)
            step += 1
        elif word == Word.EVALUATE:
            evaluate(engine, data.evaluation(step), step, "")
        else:
            engine.tensors()


def _say(word: Word, run: Run) -> None:
    """Tell the other ranks what comes, where it takes them; otherwise they know that all of it is updates."""
    if run.engine.is_spread:
        ranks.first_says(word)


def _proceed(run: Run, state: TrainingState, keeper: Keeper | None, asked: Requests | None) -> Outcome:
    steps, evaluations = run.spec.train.steps, set(run.spec.eval_steps())
    together = READ_EVERY[run.engine.device.type]
    while True:
        step = state.step
        if (step in evaluations or len(run.unread) >= together) and (gone := _read(run, state)):
            return gone
        stopping = asked is not None and asked.stop() and step < steps
        keeping = stopping or (keeper and keeper.due(step)) or (asked is not None and asked.checkpoint())
        if keeping and (gone := _read(run, state)):
            return gone
        if keeper and keeping:
            run.sink.flush()
            _say(Word.SAVE, run)
            keeper.save(state, run.engine)
        if stopping:
            return Outcome(step, None, state.data_hash, interrupted=True)
        if step in evaluations and not _evaluated(run, state):
            return Outcome(step, step, state.data_hash)
        if step == steps:
            return Outcome(step, None, state.data_hash)
        _step(run, state)


def _evaluated(run: Run, state: TrainingState) -> bool:
    """Evaluate; whether the losses are numbers."""
    _say(Word.EVALUATE, run)
    rows = evaluate(run.engine, run.data.evaluation(state.step), state.step, state.data_hash)
    for row in rows:
        run.sink.evaluation(row)
    return all(math.isfinite(row.loss_nats) for row in rows)


def _step(run: Run, state: TrainingState) -> None:
    """One update, and `state` moved on; the step's row waits to be read."""
    began = time.perf_counter()
    batch = run.data.batch(state.step)
    state.data_hash = rolling_hash(state.data_hash, batch)
    _say(Word.UPDATE, run)
    run.unread.append(_Unread(state.step, run.engine.update(batch, state.step), state.data_hash, began))
    state.step += 1


def _read(run: Run, state: TrainingState) -> Outcome | None:
    """Rows of the steps not read yet; the outcome where training is gone."""
    unread, run.unread = run.unread, []
    if not unread:
        return None
    losses, norms = torch.stack(
        [torch.stack([one.update.loss, one.update.grad_norm.double()]) for one in unread]
    ).T.tolist()
    step_ms = 1000 * (time.perf_counter() - unread[0].began) / len(unread)
    for one, loss, norm in zip(unread, losses, norms, strict=True):
        run.sink.step(StepRow(one.step, loss, norm, one.update.lr, step_ms))
        if state.guard.gone(one.step, loss, run.spec) or not math.isfinite(norm):
            return Outcome(one.step, one.step, one.data_hash)
    return None
