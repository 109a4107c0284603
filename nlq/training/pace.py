"""How long an update takes on this machine and how much memory it needs, measured once for a shape and kept.

The measurement trains on random tokens for about a second, in as many processes at once as will train at once: cores
that share a memory slow each other down.
"""

import hashlib
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nlq.core.errors import NlqError
from nlq.core.launch import Slot
from nlq.core.spec import RunSpec
from nlq.data.plan import Batch, rolling_hash
from nlq.models.build import build, initialise
from nlq.models.cost import Cost
from nlq.training.busy import Others
from nlq.training.device import open_device
from nlq.training.engine import Engine
from nlq.training.evaluate import TOKENS_A_PASS
from nlq.training.kept import Kept

MEASURE_S = 0.8
MEASURE_FLOPS = 5e10
"""The most work that a measured update is given, where it can be divided."""
WARM_STEPS = 2
BUSY_SHARE = 0.1
"""The share of the processors from which on other programs disturb a measurement too much to keep it."""
FILE = "pace.json"


class Pace(NamedTuple):
    """What one update of a whole batch takes, what a token takes to evaluate, and the peak memory of a device.

    `memory_bytes` is that of updates and of evaluations beside what updates keep, whichever is more. Where a run has
    several devices, what they need to exchange gradients comes on top.
    """

    step_s: float
    eval_token_s: float
    memory_bytes: int


class Paces:
    """Measured paces on some slots, kept in the folder `cache` under everything that they depend on.

    What was measured while other programs were busy serves this object alone and is not kept. `source` identifies the
    code. `announce` takes a sentence before something is measured.
    """

    def __init__(self, cache: Path, slots: list[Slot], source: str, announce: Callable[[str], None]) -> None:
        self.slots, self.source, self.announce = slots, source, announce
        self.others_share = 0.0
        self._kept, self._found = Kept(cache / FILE), dict[str, Pace]()

    def of(self, spec: RunSpec, one: Cost) -> Pace:
        """The pace of a resolved spec whose model costs `one`. Raises NlqError where a step cannot be measured."""
        rows = measured_rows(spec, one)
        pace = self._pace(smaller(spec, rows))
        not_seen = ((spec.train.micro_batch or spec.sequences_per_device) - rows) * one.activation_bytes
        step_s = pace.step_s * spec.sequences_per_device / rows
        return Pace(step_s, pace.eval_token_s, pace.memory_bytes + not_seen)

    def remarks(self) -> list[str]:
        """That other programs kept the machine busy, where they did."""
        if self.others_share <= BUSY_SHARE:
            return []
        share = f"{100 * self.others_share:.0f} %"
        return [f"other programs took {share} of the processors while steps were timed: not kept, timed anew next time"]

    def _pace(self, spec: RunSpec) -> Pace:
        key = self._key(spec)
        if key not in self._found:
            kept = _pace(self._kept.get(key))
            self._found[key] = kept if kept is not None else self._measured(spec, key)
        return self._found[key]

    def _measured(self, spec: RunSpec, key: str) -> Pace:
        self.announce(f"measuring a step ({spec.model.variant}, width {spec.model.width}, {spec.train.precision})")
        with Others() as others:
            pace = _measure_together(spec, self.slots)
        self.others_share = max(self.others_share, others.share)
        if others.share <= BUSY_SHARE:
            self._kept.put(key, list(pace))
        return pace

    def _key(self, spec: RunSpec) -> str:
        slot, sizes = self.slots[0], spec.model_dump(include={"model", "train", "optim"})
        depends_on = [sizes, slot.device, slot.threads, len(self.slots), torch.__version__, self.source]
        return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:32]


def _pace(kept: Any) -> Pace | None:
    """A pace as it was kept, where it is one."""
    return Pace(*kept) if isinstance(kept, list) and len(kept) == len(Pace._fields) else None


def measured_rows(spec: RunSpec, one: Cost) -> int:
    """Sequences in a measured batch: those of a micro-batch, or as many as take little time."""
    affordable = int(MEASURE_FLOPS // (one.flops_per_token * spec.model.context))
    return max(1, min(spec.train.micro_batch or spec.sequences_per_device, affordable))


def smaller(spec: RunSpec, rows: int) -> RunSpec:
    """The run that is measured: what its pace does not depend on has one value, so that equal shapes are equal."""
    optim = {"lr_max": 1e-3, "lr_min": 1e-4, "weight_decay": 0.1, "warmup_steps": 0, "decay_steps": 1}
    train = {
        "batch_tokens": rows * spec.model.context, "micro_batch": None, "devices": 1, "steps": 1, "eval_every": 1,
        "eval_windows": 2, "report_step": None, "compile": "never", "keep_steps": (), "checkpoint_steps": None,
        "sharded": False,
    }  # fmt: skip
    return spec.resolved(optim=optim, train=train).model_copy(update={"seed": 0})


def _measure_together(spec: RunSpec, slots: list[Slot]) -> Pace:
    """The mean over one process a slot, all at once."""
    steps, evals, memory = zip(*in_processes(_measure, spec, slots), strict=True)
    return Pace(statistics.mean(steps), statistics.mean(evals), max(memory))


def in_processes(measure: Callable[[RunSpec, Slot], Any], spec: RunSpec, slots: list[Slot]) -> list[Any]:
    """What `measure` finds, as JSON has it, in one process a slot, all at once. Raises NlqError where one ended.

    They are forked, so this process itself must never compute: threads of OpenMP are not there after a fork.
    """
    context = multiprocessing.get_context("fork")
    started = []
    for slot in slots:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(measure, spec, slot, theirs), daemon=True)
        process.start()
        theirs.close()
        started.append((process, ours))
    try:
        return [json.loads(ours.recv_bytes()) for _, ours in started]
    except EOFError as error:
        message = f"a step of {spec.model.variant}, width {spec.model.width}, could not be measured: its process ended"
        raise NlqError(message, "what it printed says why; train.micro_batch: fewer, where memory is short") from error
    finally:
        for process, _ in started:
            process.terminate()  # Ctrl-C does not reach it, and after an answer nothing is left to do
            process.join()


def _answer(measure: Callable[[RunSpec, Slot], Any], spec: RunSpec, slot: Slot, answer: Connection) -> None:
    os.setsid()  # as a run does: Linux shares processors out among sessions first
    os.environ.update(slot.environment)
    answer.send_bytes(json.dumps(measure(spec, slot)).encode())


def _measure(spec: RunSpec, slot: Slot) -> Pace:
    device = open_device(slot.device, slot.threads).torch_device
    engine = _engine(spec, device)
    update = _update(engine)
    for _ in range(WARM_STEPS):
        update()
    step_s = _median_s(update)
    windows = _random_batch(spec, max(1, TOKENS_A_PASS // spec.model.context))
    x_BT, y_BT = (torch.from_numpy(tokens_BT).to(device) for tokens_BT in windows)
    eval_s = _median_s(lambda: engine.token_losses(x_BT, y_BT).double().cpu())
    return Pace(step_s, eval_s / windows.x_BT.size, peak_memory_bytes(device))


def update_of(spec: RunSpec, device: torch.device) -> Callable[[], None]:
    """What makes one update on random tokens and reads its loss, as a run does, with a model of its own."""
    return _update(_engine(spec, device))


def _engine(spec: RunSpec, device: torch.device) -> Engine:
    model = build(spec.model)
    initialise(model, 0)
    return Engine(model, spec, device)


def _update(engine: Engine) -> Callable[[], None]:
    batch = _random_batch(engine.spec, engine.spec.sequences_per_step)

    def update() -> None:
        rolling_hash("", batch)
        float(engine.update(batch, 0).loss)

    return update


def _median_s(action: Callable[[], object]) -> float:
    times: list[float] = []
    while sum(times) < MEASURE_S:
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _random_batch(spec: RunSpec, rows: int) -> Batch:
    tokens = np.random.default_rng(0).integers(0, spec.model.vocab or 2, (rows, spec.model.context + 1))
    return Batch(np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:]))


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that this process has held: on a GPU PyTorch's tensors, on a CPU all of it."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # kilobytes on Linux, bytes on macOS
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
