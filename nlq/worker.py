"""The process that trains one run: read its spec, build, train, write its rows, say how it ended."""

import argparse
import errno
import platform
import resource
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from nlq import __version__
from nlq.core.errors import NlqError
from nlq.core.run import Outcome, Provenance, State
from nlq.core.spec import RunSpec
from nlq.provenance import code_state
from nlq.runners._process import this_process
from nlq.store.queue import Queue
from nlq.store.writer import RunWriter, StaleAttemptError


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the run that holds `--token`. Returns 0 when it completed or diverged, 1 when it failed."""
    parser = argparse.ArgumentParser(prog="python -m nlq.worker", description=__doc__)
    parser.add_argument("--db", type=Path, required=True, help="the database that holds the run")
    parser.add_argument("--token", required=True, help="the attempt's token")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of this process")
    parser.add_argument("--cache", type=Path, required=True, help="folder of prepared corpora")
    options = parser.parse_args(arguments)
    queue = Queue(options.db)
    try:
        return _attempt(queue, options)
    finally:
        queue.close()


def _attempt(queue: Queue, options: argparse.Namespace) -> int:
    spec, attempt, run_id = queue.spec(options.token)
    print(f"run {run_id}, attempt {attempt}, seed {spec.seed}, {spec.train.steps} steps", flush=True)
    try:
        outcome = _train(queue, options, spec, attempt)
    except StaleAttemptError as error:
        print(f"{error}; stopping", flush=True)
        return 1
    except Exception as error:  # noqa: BLE001 - whatever a run dies of is recorded, and the sweep goes on
        traceback.print_exc()
        message = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        queue.finish(attempt, State.FAILED, exit_code=1, failure_class=failure_class(error), message=message)
        return 1
    state = State.COMPLETED if outcome.diverged_step is None else State.DIVERGED
    queue.finish(attempt, state, exit_code=0, diverged_step=outcome.diverged_step)
    print(f"{state} after {outcome.steps_done} steps", flush=True)
    return 0


def _train(queue: Queue, options: argparse.Namespace, spec: RunSpec, attempt: int) -> Outcome:
    """Imports PyTorch: the database is at hand before, so that a failure to import is recorded too."""
    import torch

    from nlq.data.plan import run_data
    from nlq.data.prepare import open_by_digest
    from nlq.models.build import build, initialise
    from nlq.training.device import open_device, parameter_dtype
    from nlq.training.loop import train

    device = open_device(options.device, options.threads)
    queue.started(attempt, _provenance(device.name, options.threads, torch.__version__))
    prepared = open_by_digest(spec.data.sha256 or "", options.cache)
    if prepared is None:
        raise NlqError(f"the prepared tokens {spec.data.sha256} are gone from {options.cache}", "run the sweep again")
    model = build(spec.model)
    initialise(model, spec.seed)
    model.to(device.torch_device, parameter_dtype(spec))
    writer = RunWriter(options.db, attempt, spec.train.batch_tokens)
    outcome = train(model, run_data(spec, prepared), writer, spec, device.torch_device)
    writer.close(outcome.data_hash, _peak_memory_bytes(device.torch_device))
    return outcome


def failure_class(error: Exception) -> str:
    """The class under which a failure is counted: out_of_memory, no_space, bad_data or code_error."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    if getattr(error, "errno", None) == errno.ENOSPC or "disk is full" in str(error):
        return "no_space"
    return "bad_data" if isinstance(error, NlqError) else "code_error"


def _provenance(device: str, threads: int, torch_version: str) -> Provenance:
    commit, dirty = code_state()
    host = this_process().host
    return Provenance(host, device, threads, __version__, torch_version, platform.python_version(), commit, dirty)


def _peak_memory_bytes(device: object) -> int:
    import torch

    if getattr(device, "type", "cpu") == "cuda":
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024  # kilobytes on Linux, bytes on macOS
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    sys.exit(main())
