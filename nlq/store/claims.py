"""What a claim looks at and writes, inside the transaction of `Queue.claim`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from nlq.core.launch import Process, slot_names
from nlq.core.run import State
from nlq.store.database import utc_now

_OF_SWEEP = (
    "AND EXISTS (SELECT 1 FROM sweep_runs WHERE sweep_runs.run = runs.run"
    " AND sweep = (SELECT sweep FROM sweeps WHERE name = ?))"
)


def next_queued(db: Database, sweep: str | None, most: int) -> Sequence[Any] | None:
    """Number, id and devices of the first run that needs at most `most` devices.

    Along the index of states, in the order in which runs were queued: no sorting, however many wait.
    """
    row: Sequence[Any] | None = db.execute(
        f"SELECT run, run_id, devices FROM runs WHERE state = ? AND devices <= ? {_of(sweep)}"
        " ORDER BY priority DESC, run LIMIT 1",
        [State.QUEUED, most, *_named(sweep)],
    ).fetchone()
    return row


def queued_beyond(db: Database, sweep: str | None, most: int) -> int:
    """How many queued runs need more than `most` devices."""
    sql = f"SELECT COUNT(*) FROM runs WHERE devices > 1 AND devices > ? AND state = ? {_of(sweep)}"
    (count,) = db.execute(sql, [most, State.QUEUED, *_named(sweep)]).fetchone()
    return int(count)


def not_taken(db: Database, slots: Sequence[str], host: str) -> list[str]:
    """Those of a host's slots that no attempt is in."""
    rows = db.execute("SELECT slot FROM attempts WHERE ended IS NULL AND host = ? AND slot IS NOT NULL", [host])
    taken = {name for (joined,) in rows for name in slot_names(joined)}
    return [slot for slot in slots if slot not in taken]


def insert_attempt(db: Database, run: int, token: str, scheduler: Process, slot: str, log_path: Path) -> int:
    """The number of a new attempt."""
    cursor = db.execute(
        "INSERT INTO attempts (run, token, host, boot_id, scheduler_pid, scheduler_pid_started, slot,"
        " claimed_at_utc, log_path) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [run, token, scheduler.host, scheduler.boot_id, scheduler.pid, scheduler.started, slot, utc_now()]
        + [str(log_path)],
    )
    return int(cursor.lastrowid or 0)


def _of(sweep: str | None) -> str:
    return "" if sweep is None else _OF_SWEEP


def _named(sweep: str | None) -> list[str]:
    return [] if sweep is None else [sweep]
