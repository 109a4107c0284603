"""Runs made elsewhere, into runs.db: finished from the first moment, so that nothing can claim or change them."""

import json
import math
import secrets
from collections.abc import Mapping

from sqlite_utils import Database

from nlq.core.imported import BATCH, TRAIN, Imported
from nlq.core.run import IMPORTED, State
from nlq.core.sweep import PlannedRun, Sweep
from nlq.store.database import immediate, utc_now
from nlq.store.queue import RUN_ID_LENGTH, Queue


def take(queue: Queue, sweep: Sweep, found: Mapping[str, Imported]) -> list[str]:
    """Write the runs of an imported sweep, `found` by spec key, and return the keys that were not there before.

    A run that is there stays as it is; the sweep's name stands for these runs from now on.
    """
    with immediate(queue.db):
        known = {key for (key,) in queue.db.execute("SELECT spec_key FROM runs")}
        new = [planned for planned in {p.key: p for p in sweep.runs}.values() if planned.key not in known]
        for planned in new:
            _write(queue.db, planned, found[planned.key])
        queue.name_sweep(sweep)
    return [planned.key for planned in new]


def _write(db: Database, planned: PlannedRun, run: Imported) -> None:
    """The run is running while its rows are written, as the tables demand of every row; nobody else sees that."""
    now, state = utc_now(), State.COMPLETED if run.diverged_step is None else State.DIVERGED
    db.execute("INSERT INTO specs VALUES (?, ?, ?)", [planned.key, json.dumps(run.spec), now])
    cursor = db.execute(
        "INSERT INTO runs (run_id, spec_key, state, seed, steps_planned, non_embedding_params, total_params,"
        " flops_per_token, queued_at_utc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [planned.key[:RUN_ID_LENGTH], planned.key, State.RUNNING, planned.spec.seed, run.steps_planned]
        + [run.non_embedding_params, run.total_params, run.flops_per_token, now],
    )
    number = cursor.lastrowid or 0
    attempt = _attempt(db, number, run, state, now)
    db.execute("UPDATE runs SET attempt = ? WHERE run = ?", [attempt, number])
    rows = [(step, split, loss) for split, curve in run.losses.items() for step, loss in curve.items()]
    db.conn.executemany(
        "INSERT INTO evals (run, step, split, attempt, loss_nats) VALUES (?, ?, ?, ?, ?)",
        [(number, step, split, attempt, loss if math.isfinite(loss) else None) for step, split, loss in rows],
    )
    done = run.steps_planned if run.diverged_step is None else run.diverged_step
    last = run.last(BATCH) or run.last(TRAIN)
    db.execute(
        "UPDATE runs SET state = ?, steps_done = ?, diverged_step = ?, last_loss_nats = ? WHERE run = ?",
        [state, done, run.diverged_step, last[1] if last and math.isfinite(last[1]) else None, number],
    )


def _attempt(db: Database, run: int, found: Imported, state: State, now: str) -> int:
    cursor = db.execute(
        "INSERT INTO attempts (run, token, host, claimed_at_utc, finished_at_utc, ended, imported_from,"
        " imported_sha256) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [run, secrets.token_hex(16), IMPORTED, now, now, state, found.source, found.sha256],
    )
    return int(cursor.lastrowid or 0)
