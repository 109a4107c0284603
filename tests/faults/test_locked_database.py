"""Row 1: many writers, readers, and a program that holds the write lock. NLQ_FAULTS=full holds it for 20 s."""

import io
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from nlq.commands.control import Choice, priority
from nlq.commands.status import status
from nlq.core.document import parse
from nlq.core.run import CodeState, EvalRow, State, StepRow, WindowLosses
from nlq.core.spec import defaults_resolved
from nlq.core.sweep import expand
from nlq.runners._process import this_process
from nlq.store import maintenance
from nlq.store.queue import Counts, Queue
from nlq.store.reader import Reader
from nlq.store.writer import RunWriter

WRITERS, ROWS, ROWS_A_FLUSH = 8, 300, 5
HOLD_S = 20.0 if os.environ.get("NLQ_FAULTS") == "full" else 1.5
NOTHING = WindowLosses(*(np.zeros(0),) * 5)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    seeds = list(range(WRITERS))
    sweep = expand(parse(f"{{name: s, arms: {{a: {{}}}}, seeds: {seeds}}}", "s.yaml", Path()), defaults_resolved)
    queue = Queue(path)
    queue.enqueue(sweep, {run.key: Counts(1, 1, 1) for run in sweep.runs}, CodeState("digest", None, None))
    queue.close()
    return path


def write_a_run(db: Path) -> str:
    """What a scheduler and a worker do: claim, write rows, finish."""
    queue = Queue(db)
    claim = queue.claim("s", this_process(), f"slot {threading.get_ident()}", Path("logs"))
    assert claim is not None
    queue.launched(claim.attempt, this_process())
    writer = RunWriter(db, claim.attempt, tokens_per_step=1)
    for step in range(ROWS):
        writer.step(StepRow(step, 3.0, 1.0, 1e-3, 1.0))
        if step % ROWS_A_FLUSH == 0:
            writer.evaluation(EvalRow(step, "select", 3.0, 1, 1.0, "hash", "windows", NOTHING))
            writer.flush()
            time.sleep(0.005)  # a step takes time too: the others get their turn
    writer.close("hash", None)
    assert queue.finish(claim.attempt, State.COMPLETED, exit_code=0)
    queue.close()
    return claim.run_id


def hold(db: Path, held: threading.Event) -> None:
    """A shell in which somebody has typed BEGIN IMMEDIATE."""
    with closing(sqlite3.connect(db, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(HOLD_S)
        connection.execute("ROLLBACK")


def test_1_nobody_dies_and_no_row_is_lost(db: Path, tmp_path: Path) -> None:
    held, looks = threading.Event(), 0
    with ThreadPoolExecutor(WRITERS + 2) as pool:
        writers = [pool.submit(write_a_run, db) for _ in range(WRITERS)]
        while not Reader(db).steps([run.run_id for run in Reader(db).runs()]).size:
            assert not any(writer.done() and writer.exception() for writer in writers)
            time.sleep(0.01)
        holder = pool.submit(hold, db, held)
        held.wait()
        changed = pool.submit(priority, db, 5, Choice(sweep="s"), as_json=True)
        kept = maintenance.backup(db, tmp_path / "kept.db")
        while not (holder.done() and all(writer.done() for writer in writers)):
            with redirect_stdout(io.StringIO()):
                status(db, None, as_json=True)
            looks += 1
        ids = [writer.result() for writer in writers]
        assert changed.result() == 0
        holder.result()
    assert looks > 1
    assert len(set(ids)) == WRITERS
    reader = Reader(db)
    assert all(run.state is State.COMPLETED and run.steps_done == ROWS for run in reader.runs())
    assert reader.steps(ids).groupby("run_id").size().tolist() == [ROWS] * WRITERS
    assert {len(points) for points in reader.evals(ids).values()} == {ROWS // ROWS_A_FLUSH}
    assert maintenance.check(db) == []
    assert maintenance.check(kept) == []
