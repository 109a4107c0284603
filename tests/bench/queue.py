"""What the queue and the recording cost on this machine. `make bench-queue` prints one line a figure."""

import argparse
import io
import itertools
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from nlq.core.document import parse
from nlq.core.launch import Launch, Process, Slot
from nlq.core.run import CodeState, EvalRow, State, StepRow, WindowLosses
from nlq.core.spec import defaults_resolved
from nlq.core.sweep import expand
from nlq.scheduler import Place, Scheduler
from nlq.store.queue import Counts, Queue
from nlq.store.writer import RunWriter

PROCESSES = 8
NOBODY = Process("host", "boot", 1, "1")
CODE = CodeState("", None, None)


def fill(db: Path, runs: int) -> list[str]:
    """A sweep of queued runs; returns their ids."""
    text = f"{{name: s, arms: {{baseline: {{}}}}, seeds: [{', '.join(map(str, range(runs)))}]}}"
    sweep = expand(parse(text, "s", Path()), defaults_resolved)
    queue = Queue(db)
    queue.enqueue(sweep, {run.key: Counts(1, 1, 1) for run in sweep.runs}, CODE)
    queue.close()
    return [run.key[:12] for run in sweep.runs]


def claim_all(db: Path, start: float) -> None:
    """Claim until nothing waits."""
    queue = Queue(db)
    while time.time() < start:
        pass
    slots = (f"{os.getpid()}-{number}" for number in itertools.count())
    while queue.claim("s", NOBODY, next(slots), Path("logs")):
        pass


def write_rows(db: Path, start: float, rows: int) -> None:
    """Rows as a run writes them: gathered, then written in one transaction each 5,000."""
    queue = Queue(db)
    claim = queue.claim("s", NOBODY, f"{os.getpid()}", Path("logs"))
    assert claim
    writer = RunWriter(db, claim.attempt, 1)
    while time.time() < start:
        pass
    for step in range(rows):
        writer._steps.append(StepRow(step, 1.0, 1.0, 1e-3, 5.0))
        if step % 5000 == 4999:
            writer.flush()
    writer.flush()


def together(target: Callable[..., None], *arguments: object) -> float:
    """Seconds that PROCESSES processes take side by side, from a common start."""
    start = time.time() + 2.0
    group = [
        multiprocessing.Process(target=target, args=(arguments[0], start, *arguments[1:])) for _ in range(PROCESSES)
    ]
    for process in group:
        process.start()
    for process in group:
        process.join()
    return time.time() - start


def claims(folder: Path, runs: int) -> str:
    """Claims a second of several schedulers."""
    db = folder / "claims.db"
    fill(db, runs)
    return f"{runs / together(claim_all, db):,.0f} claims/s with {PROCESSES} schedulers"


def rows(folder: Path, each: int) -> str:
    """Rows a second of several writers."""
    db = folder / "rows.db"
    fill(db, PROCESSES)
    return f"{PROCESSES * each / together(write_rows, db, each):,.0f} rows/s with {PROCESSES} writers"


class Instant:
    """A runner whose runs end at once: what is left is the dispatch itself."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.process = NOBODY
        self.starts: list[float] = []

    def warm(self) -> bool:
        return True

    def start(self, launch: Launch) -> "Instant":
        self.starts.append(time.perf_counter())
        token = launch.arguments[launch.arguments.index("--token") + 1]
        self.queue.finish(self.queue.order(token).attempt, State.COMPLETED)
        return self

    def poll(self) -> int:
        return 0

    def adopt(self, process: Process) -> "Instant":
        return self


def dispatch(folder: Path, runs: int) -> str:
    """Seconds between a run's end and the next one's start in the same slot, the start of a process apart."""
    db = folder / "dispatch.db"
    fill(db, runs)
    queue = Queue(db)
    runner = Instant(Queue(db))
    slots = [Slot("cpu:0", "cpu", 1)]
    Scheduler(queue, runner, slots, "s", Place(db, folder, folder), NOBODY, lambda _: True, lambda: None).run()
    gaps = sorted(b - a for a, b in zip(runner.starts, runner.starts[1:], strict=False))
    return f"{1000 * gaps[len(gaps) // 2]:.1f} ms from a free slot to the next start (median of {len(gaps)})"


def recording(folder: Path, steps: int) -> str:
    """The share of steps of 5 ms that recording takes, measured in the loop's own thread."""
    db = folder / "recording.db"
    fill(db, 1)
    queue = Queue(db)
    claim = queue.claim("s", NOBODY, "x", Path("logs"))
    assert claim
    writer, spent = RunWriter(db, claim.attempt, 1), 0.0
    for step in range(steps):
        time.sleep(0.005)
        began = time.perf_counter()
        writer.step(StepRow(step, 1.0, 1.0, 1e-3, 5.0))
        spent += time.perf_counter() - began
    return f"{100 * spent / (steps * 0.005):.2f} % of steps of 5 ms goes to recording"


def evaluations(step: int, seed: int) -> Iterator[EvalRow]:
    """Both halves of one evaluation."""
    none = np.zeros(0)
    for split in ("select", "confirm"):
        loss = 3.0 + math.exp(-step / 3000) + 0.001 * seed
        yield EvalRow(step, split, loss, 1000, 5.0, f"h{step}-{seed}", "w", WindowLosses(none, none, none, none, none))


def fill_results(db: Path, runs: int, steps: int) -> None:
    """Completed runs with every step and a hundred evaluations each."""
    fill(db, runs)
    queue = Queue(db)
    for seed in range(runs):
        claim = queue.claim("s", NOBODY, "x", Path("logs"))
        assert claim
        writer = RunWriter(db, claim.attempt, 1)
        writer._steps = [StepRow(step, 3.0, 1.0, 1e-3, 5.0) for step in range(steps)]
        writer._evals = [row for step in range(0, steps + 1, 100) for row in evaluations(step, seed)]
        writer.flush()
        writer.db.close()
        queue.finish(claim.attempt, State.COMPLETED)


def reading(folder: Path, runs: int, steps: int) -> str:
    """Seconds of `nlq status` and `nlq report --table1` in this process, their imports done."""
    from nlq.commands.report import report_table1
    from nlq.commands.status import status

    db = folder / f"reading-{runs}.db"
    fill_results(db, runs, steps)
    times = []
    for look in (
        lambda: status(db, None, as_json=True),
        lambda: report_table1(db, None, "json", None, all_points=False),
    ):
        for _ in range(2):
            began = time.perf_counter()
            with redirect_stdout(io.StringIO()):
                look()
        times.append(time.perf_counter() - began)
    return f"{times[0]:.2f} s status, {times[1]:.2f} s report at {runs:,} runs × {steps:,} steps"


def figures(folder: Path, small: bool) -> Iterator[str]:
    """All figures, one line each."""
    yield claims(folder, 500 if small else 20_000)
    yield dispatch(folder, 20 if small else 100)
    yield rows(folder, 5_000 if small else 200_000)
    yield recording(folder, 200 if small else 2000)
    for runs, steps in ((20, 100),) if small else ((200, 10_000), (2_000, 1_000)):
        yield reading(folder, runs, steps)


def main() -> None:
    """Print every figure; `--json` as one list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a quick look, to see that it works")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for line in figures(Path(folder), options.small):
            lines.append(line)
            if not options.json:
                print(line, flush=True)
    if options.json:
        json.dump(lines, sys.stdout)


if __name__ == "__main__":
    main()
