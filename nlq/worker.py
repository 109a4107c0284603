"""The process that trains one run: read its order, build, resume, train, write its rows, say how it ended."""

import argparse
import errno
import importlib
import json
import os
import platform
import signal
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import psutil

from nlq import __version__
from nlq.core import plugin
from nlq.core.errors import NlqError
from nlq.core.launch import slot_names
from nlq.core.run import Outcome, Provenance, State
from nlq.core.spec import RunSpec
from nlq.provenance import code_state, source_sha256
from nlq.runners._energy import Meter
from nlq.runners._process import this_process
from nlq.runners._ranks import CODES, PEER_GONE, RankLostError, Ranks, end_with, wait_for_the_end
from nlq.store.queue import Order, Queue
from nlq.store.writer import RunWriter, StaleAttemptError

if TYPE_CHECKING:
    import torch

    from nlq.data.plan import RunData
    from nlq.training.engine import Engine

EXIT_FAILED = 1
EXIT_NO_SPACE = errno.ENOSPC
"""The disk is full, perhaps so full that the database could not be told."""

IMPORTED_LATE = (
    "torch._inductor.config",  # torch.use_deterministic_algorithms needs it
    "nlq.data.plan",
    "nlq.data.prepare",
    "nlq.models.build",
    "nlq.training.checkpoint",
    "nlq.training.device",
    "nlq.training.engine",
    "nlq.training.loop",
    "nlq.training.pace",
)
"""What a run imports inside functions."""

COMPONENTS = tuple(f"nlq.models.{slot}" for slot in ("attention", "feedforward", "positions", "projections"))


class CodeChangedError(NlqError):
    """The source is not what the run was queued with, and --strict was asked for."""


class Signals:
    """What others ask by signals: SIGTERM and SIGINT to stop after a checkpoint, SIGUSR1 for a checkpoint."""

    def __init__(self) -> None:
        self._stop, self._checkpoint = False, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is not threading.main_thread():
            return self  # Python takes signals in the main thread alone
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop(self) -> bool:
        """Whether to write a checkpoint and stop."""
        return self._stop

    def checkpoint(self) -> bool:
        """Whether a checkpoint was asked for since the last look."""
        asked, self._checkpoint = self._checkpoint, False
        return asked

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self._checkpoint = True
            return
        self._stop = True
        before = self._before.get(number)
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)


def import_all() -> None:
    """Import whatever a run may need. A component that is broken is told by the run that uses it."""
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    for folder in COMPONENTS:
        for kind in plugin.kinds(folder):
            with suppress(Exception):
                plugin.load(folder, kind)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the run that holds `--token`. Returns 0 when it completed, diverged or was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m nlq.worker", description=__doc__)
    parser.add_argument("--db", type=Path, required=True, help="the database that holds the run")
    parser.add_argument("--token", required=True, help="the attempt's token")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of this process")
    parser.add_argument("--cache", type=Path, required=True, help="folder of prepared corpora")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder of checkpoints")
    parser.add_argument("--strict", action="store_true", help="refuse a run that other code was queued with")
    parser.add_argument("--rank", type=int, default=0, help="which of the run's devices: 0 trains, starts the others")
    parser.add_argument("--parent", type=int, help="the process of rank 0")
    options = parser.parse_args(arguments)
    options.arguments = list(sys.argv[1:] if arguments is None else arguments)
    if options.rank:
        return _train_beside(options)
    with Signals() as asked:
        queue = Queue(options.db)
        try:
            return _attempt(queue, queue.order(options.token), options, asked)
        finally:
            queue.close()


def _attempt(queue: Queue, order: Order, options: argparse.Namespace, asked: Signals) -> int:
    if not queue.launched(order.attempt, this_process()):
        _say("this attempt has ended already; stopping")
        return EXIT_FAILED
    _say(f"run {order.run_id}, seed {order.spec.seed}, {order.spec.train.steps} steps")
    try:
        outcome = _train(queue, order, options, asked)
    except StaleAttemptError as error:
        _say(f"{error}; stopping")
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - whatever a run dies of is recorded, and the sweep goes on
        with suppress(OSError):
            traceback.print_exc()
        return _record_failure(queue, order, error)
    _record_end(queue, order.attempt, outcome)
    return 0


def _record_end(queue: Queue, attempt: int, outcome: Outcome) -> None:
    if outcome.interrupted:
        queue.give_back(attempt, f"interrupted, with a checkpoint at step {outcome.steps_done}")
        _say(f"interrupted; a checkpoint is at step {outcome.steps_done}")
        return
    state = State.COMPLETED if outcome.diverged_step is None else State.DIVERGED
    queue.finish(attempt, state, exit_code=0, diverged_step=outcome.diverged_step)
    _say(f"{state} after {outcome.steps_done} steps")


def _record_failure(queue: Queue, order: Order, error: Exception) -> int:
    kind = failure_class(error)
    message = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
    code = EXIT_NO_SPACE if kind == "no_space" else EXIT_FAILED
    try:
        if kind in ("device_error", "killed"):
            queue.lose(order.attempt, message, exit_code=code, failure_class=kind)
        elif kind == "out_of_memory":
            _record_out_of_memory(queue, order, message)
        else:
            queue.finish(order.attempt, State.FAILED, exit_code=code, failure_class=kind, message=message)
    except Exception as second:  # noqa: BLE001 - the scheduler records what the exit code says
        _say(f"not recorded: {second}")
    return code


def _record_out_of_memory(queue: Queue, order: Order, message: str) -> None:
    """Once more with half the micro-batch, which leaves the batch and so the numbers as they are; then a failure."""
    spec = order.spec
    now = spec.train.micro_batch or spec.sequences_per_device
    smaller = next((size for size in range(now // 2, 0, -1) if spec.sequences_per_device % size == 0), None)
    if smaller is not None and not queue.was_halved(order.attempt):
        queue.halve(order.attempt, smaller, f"{message}; once more with micro-batches of {smaller}")
        return
    would_fit = (
        f"try train.micro_batch: {smaller}" if smaller else "one sequence at a time does not fit: a smaller model"
    )
    queue.finish(
        order.attempt, State.FAILED, exit_code=1, failure_class="out_of_memory", message=f"{message}; {would_fit}"
    )


def failure_class(error: Exception) -> str:
    """The class under which a failure is counted."""
    if isinstance(error, RankLostError):
        return error.kind
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "alloc_cpu" in str(error):
        return "out_of_memory"
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in str(error):
        return "no_space"
    if type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error):
        return "device_error"
    if isinstance(error, NlqError) and not isinstance(error, CodeChangedError):
        return "bad_data"
    return "code_error"


def _train(queue: Queue, order: Order, options: argparse.Namespace, asked: Signals) -> Outcome:
    """Imports PyTorch: the database is at hand before, so that a failure to import is recorded too."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(options.cache / "compiled"))  # a shape compiles once a sweep
    from nlq.training.checkpoint import Checkpoints
    from nlq.training.loop import Run, proceed
    from nlq.training.pace import peak_memory_bytes
    from nlq.training.ranks import first_says

    _check_code(queue, order, options.strict)
    tell = partial(_tell, queue, order.attempt, "checkpoint")
    keeper = Checkpoints(options.checkpoints / order.run_id, order.spec, options.threads, tell)
    keeper.threads = keeper.pinned_threads()
    writer = RunWriter(options.db, order.attempt, order.spec.train.batch_tokens)
    device, uuid = _open(queue, order, options, keeper.threads)
    evals = order.spec.eval_steps()
    with _ranks(order, options, keeper.threads, device):
        engine, data = _build(order.spec, options, device, partial(_tell, queue, order.attempt, "compile"))
        state = keeper.restore(engine, lambda step: queue.rows_reach(order.attempt, step, evals))
        queue.begin(order.attempt, first_says(state.step), data.train_tokens)
        with _metered(queue, order, uuid):
            outcome = proceed(Run(engine, data, writer, order.spec), state, keeper, asked)
    writer.close(outcome.data_hash, peak_memory_bytes(device))
    if not outcome.interrupted:
        keeper.finish()
    return outcome


def _tell(queue: Queue, attempt: int, kind: str, message: str) -> None:
    """To the log, and to the events of a run."""
    _say(message)
    queue.note(attempt, kind, message)


def _open(queue: Queue, order: Order, options: argparse.Namespace, threads: int) -> tuple["torch.device", str | None]:
    """The device to train on, recorded, and the UUID of its GPU, or of all of them, joined."""
    import torch

    from nlq.training.device import in_words, open_device

    spec = order.spec
    device = open_device(options.device, _threads_each(spec, threads))
    found = in_words(options.device, device, spec.train.devices)
    queue.started(order.attempt, _provenance(found.name, found.uuid, threads, torch.__version__))
    return device.torch_device, found.uuid


@contextmanager
def _metered(queue: Queue, order: Order, uuid: str | None) -> Iterator[None]:
    """Record the energy that the run's devices use meanwhile, however that ends."""
    meter = Meter(slot_names(uuid) if uuid else [], order.slot)
    try:
        yield
    finally:
        with suppress(sqlite3.OperationalError):  # a full disk, or a lock that is held: the run is worth more
            queue.used(order.attempt, meter.joules())


def _build(
    spec: RunSpec, options: argparse.Namespace, device: "torch.device", tell: Callable[[str], None]
) -> tuple["Engine", "RunData"]:
    """A run at its beginning, the same on every device; where it is sharded, after all have joined."""
    from nlq.data.plan import run_data
    from nlq.data.prepare import open_by_digest
    from nlq.models.build import build, initialise
    from nlq.training.engine import Engine

    prepared = open_by_digest(spec.data.sha256 or "", options.cache)
    if prepared is None:
        raise NlqError(f"the prepared tokens {spec.data.sha256} are gone from {options.cache}", "run the sweep again")
    model = build(spec.model)
    initialise(model, spec.seed)
    data = run_data(spec, prepared)
    if spec.train.sharded:  # what it imports takes a while
        from nlq.training.sharded import ShardedEngine

        return ShardedEngine(model, spec, device, tell), data
    return Engine(model, spec, device, tell), data


def _threads_each(spec: RunSpec, threads: int) -> int:
    """CPU threads of each process of a run."""
    return max(1, threads // spec.train.devices)


@contextmanager
def _ranks(order: Order, options: argparse.Namespace, threads: int, device: "torch.device") -> Iterator[None]:
    """Processes for the further devices of a run, which build and train as this one does."""
    devices = order.spec.train.devices
    if devices == 1:
        yield
        return
    from nlq.training.ranks import PeerGoneError, join, leave, meeting_place

    place, threads = meeting_place(), _threads_each(order.spec, threads)
    told = {"run_id": order.run_id, "spec": order.spec.model_dump_json(), "threads": threads}
    others = Ranks(
        devices, options.arguments, json.dumps({**told, "port": place.port}), lambda error: _lost(order, options, error)
    )
    try:
        others.start(threads)
        join(0, devices, place, device, others.check)
        yield
    except PeerGoneError as error:
        raise others.blame(error) from error
    finally:
        others.end()
        leave()


def _lost(order: Order, options: argparse.Namespace, error: RankLostError) -> int:
    """Record what the training thread cannot: it waits for a rank that is gone."""
    _say(error.message)
    return _record_failure(Queue(options.db), order, error)


def _train_beside(options: argparse.Namespace) -> int:
    """Train as a further device of a run; rank 0 tells how, and ends this process. Returns why it ended before."""
    end_with(options.parent)
    try:
        _follow(options, json.load(sys.stdin))
    except Exception as error:  # noqa: BLE001 - rank 0 records it, by the exit code
        if type(error).__name__ == "PeerGoneError":
            return PEER_GONE
        with suppress(OSError):
            traceback.print_exc()
        return CODES.get(failure_class(error), EXIT_FAILED)
    wait_for_the_end()
    return 0


def _follow(options: argparse.Namespace, told: dict[str, Any]) -> None:
    from nlq.training.checkpoint import Checkpoints
    from nlq.training.device import of_rank, open_device
    from nlq.training.loop import follow
    from nlq.training.ranks import first_says, join

    spec = RunSpec.model_validate_json(told["spec"])
    device = open_device(of_rank(options.device, options.rank), told["threads"]).torch_device
    join(options.rank, spec.train.devices, told["port"], device, lambda: None)
    engine, data = _build(spec, options, device, lambda _: None)
    keeper = Checkpoints(options.checkpoints / told["run_id"], spec, told["threads"], lambda _: None)
    first = first_says()
    if keeper.restore(engine, lambda step: step == first).step != first:
        raise NlqError(f"rank {options.rank} cannot read the checkpoint at step {first}", "nlq retry")
    follow(engine, data, first)


def _check_code(queue: Queue, order: Order, strict: bool) -> None:
    if order.source_sha256 in (None, source_sha256()):
        return
    message = "nlq's source has changed since this run was queued"
    if strict:
        raise CodeChangedError(f"{message}, and --strict was asked for", "queue it again: nlq sweep SPEC")
    _say(f"{message}; the report will say so")
    queue.note(order.attempt, "code", message)


def _provenance(device: str, uuid: str | None, threads: int, torch_version: str) -> Provenance:
    code = code_state()
    host, python = this_process().host, platform.python_version()
    versions = (__version__, torch_version, python, code.git_commit, code.git_dirty, code.source_sha256)
    return Provenance(host, device, threads, *versions, device_uuid=uuid)


def _say(text: str) -> None:
    """To the log, which a full disk must not turn into a second failure."""
    with suppress(OSError):
        print(text, flush=True)


def end_children() -> None:
    """End what this process has started and not ended: its scheduler, which would, may be gone."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        end_children()
