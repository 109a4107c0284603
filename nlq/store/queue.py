"""The queue: what is waiting, who trains it, and how it ended. Every change is one short transaction."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from nlq.core.launch import Process
from nlq.core.run import FINISHED, Provenance, State
from nlq.core.spec import RunSpec
from nlq.core.sweep import PlannedRun, Sweep
from nlq.store.database import immediate, open_writable, utc_now

RUN_ID_LENGTH = 12
MOST_LOSSES = 2
"""How often a run goes back to the queue after its process vanished."""


@dataclass(frozen=True)
class Claim:
    """The right to train one run: rows are taken only from the attempt that holds the run's current token."""

    run_id: str
    attempt: int
    token: str
    log_path: Path


@dataclass(frozen=True)
class OpenAttempt:
    """An attempt that has not ended, as the database knows it. `worker` is None until the process has been started."""

    run_id: str
    attempt: int
    worker: Process | None
    scheduler: Process


@dataclass(frozen=True)
class Counts:
    """Exact sizes of a run's model, known when it is queued."""

    non_embedding_params: int
    total_params: int
    flops_per_token: int


class Queue:
    """The queue of one database, for one thread."""

    def __init__(self, path: Path) -> None:
        self.db: Database = open_writable(path)

    def close(self) -> None:
        """Close the connection."""
        self.db.close()

    def enqueue(self, sweep: Sweep, counts: Mapping[str, Counts]) -> int:
        """Put a sweep's runs in the queue and return how many were not there before; `counts` is by spec key.

        A run that is queued, running or finished stays as it is; one that failed or was cancelled is queued again.
        """
        with immediate(self.db):
            new = sum(self._enqueue_run(planned, counts[planned.key]) for planned in sweep.runs)
            self._name_sweep(sweep)
        return new

    def claim(self, sweep: str, scheduler: Process, slot: str, logs: Path) -> Claim | None:
        """Take the next queued run of a sweep, or None when none waits."""
        token = secrets.token_hex(16)
        with immediate(self.db):
            row = self._next_queued(sweep)
            if row is None:
                return None
            run, run_id = row
            log_path = logs / f"{run_id}-{token[:6]}.log"
            attempt = self._insert_attempt(run, token, scheduler, slot, log_path)
            self.db.execute(
                "UPDATE runs SET state = ?, attempt = ?, steps_done = 0, started_at_utc = ?, failure_class = NULL,"
                " failure_message = NULL, last_loss_nats = NULL, tokens_per_s = NULL WHERE run = ?",
                [State.RUNNING, attempt, utc_now(), run],
            )
            self._clear_rows(run)
            self._event(run, attempt, "claimed", f"slot {slot}")
        return Claim(run_id, attempt, token, log_path)

    def launched(self, attempt: int, worker: Process) -> None:
        """Record the process that trains an attempt."""
        with immediate(self.db):
            self.db.execute(
                "UPDATE attempts SET pid = ?, pid_started = ? WHERE attempt = ?", [worker.pid, worker.started, attempt]
            )

    def started(self, attempt: int, provenance: Provenance) -> None:
        """Record where and with what an attempt runs; the worker says so itself."""
        p = provenance
        with immediate(self.db):
            self.db.execute(
                "UPDATE attempts SET started_at_utc = ?, heartbeat_at_utc = ?, device = ?, threads = ?,"
                " nlq_version = ?, torch_version = ?, python_version = ?, git_commit = ?, git_dirty = ?"
                " WHERE attempt = ?",
                [utc_now(), utc_now(), p.device, p.threads, p.nlq_version, p.torch_version, p.python_version]
                + [p.git_commit, p.git_dirty, attempt],
            )

    def finish(
        self,
        attempt: int,
        state: State,
        *,
        exit_code: int | None = None,
        diverged_step: int | None = None,
        failure_class: str | None = None,
        message: str = "",
    ) -> bool:
        """End an attempt and, where it is still the run's current one, the run. False when it had ended before."""
        with immediate(self.db):
            open_run = self.db.execute(
                "SELECT run FROM attempts WHERE attempt = ? AND ended IS NULL", [attempt]
            ).fetchone()
            if open_run is None:
                return False
            self.db.execute(
                "UPDATE attempts SET ended = ?, exit_code = ?, finished_at_utc = ? WHERE attempt = ?",
                [state, exit_code, utc_now(), attempt],
            )
            self.db.execute(
                "UPDATE runs SET state = ?, diverged_step = ?, failure_class = ?, failure_message = ?,"
                " finished_at_utc = ? WHERE run = ? AND attempt = ? AND state = ?",
                [state, diverged_step, failure_class, message or None, utc_now(), open_run[0], attempt, State.RUNNING],
            )
            self._event(open_run[0], attempt, state, message)
        return True

    def lose(self, attempt: int, why: str, exit_code: int | None = None) -> State:
        """End an attempt whose process is gone. Its run is QUEUED again, or FAILED when that has happened too often."""
        with immediate(self.db):
            (losses,) = self.db.execute(
                "SELECT COUNT(*) FROM attempts WHERE ended = ? AND run = (SELECT run FROM attempts WHERE attempt = ?)",
                [State.LOST, attempt],
            ).fetchone()
        if losses >= MOST_LOSSES:
            self.finish(attempt, State.FAILED, exit_code=exit_code, failure_class="killed", message=why)
            return State.FAILED
        if self.finish(attempt, State.LOST, exit_code=exit_code, message=why):
            self._back_to_queue(attempt, State.LOST)
        return State.QUEUED

    def give_back(self, attempt: int, why: str) -> None:
        """End an attempt that was asked to stop; its run is QUEUED again and nothing is held against it."""
        if self.finish(attempt, State.CANCELLED, message=why):
            self._back_to_queue(attempt, State.CANCELLED)

    def _back_to_queue(self, attempt: int, state: State) -> None:
        with immediate(self.db):
            self.db.execute(
                "UPDATE runs SET state = ?, finished_at_utc = NULL WHERE attempt = ? AND state = ?",
                [State.QUEUED, attempt, state],
            )

    def open_attempts(self) -> list[OpenAttempt]:
        """Attempts that have not ended, of all schedulers."""
        rows = self.db.query(
            "SELECT run_id, attempts.* FROM attempts JOIN runs USING (run) WHERE ended IS NULL"
            " ORDER BY attempts.attempt"
        )
        return [_open_attempt(row) for row in rows]

    def states(self, sweep: str) -> dict[State, int]:
        """How many runs of a sweep are in each state."""
        rows = self.db.execute(
            "SELECT state, COUNT(DISTINCT run) FROM sweeps JOIN sweep_runs USING (sweep) JOIN runs USING (run)"
            " WHERE name = ? GROUP BY state",
            [sweep],
        )
        return {State(state): count for state, count in rows}

    def spec(self, token: str) -> tuple[RunSpec, int, str]:
        """The resolved spec of the run that holds `token`, its attempt, and its run id."""
        row = self.db.execute(
            "SELECT spec, attempts.attempt, run_id FROM attempts JOIN runs USING (run) JOIN specs USING (spec_key)"
            " WHERE token = ?",
            [token],
        ).fetchone()
        return RunSpec.model_validate_json(row[0]), row[1], row[2]

    def _enqueue_run(self, planned: PlannedRun, counts: Counts) -> int:
        now = utc_now()
        self.db.execute(
            "INSERT OR IGNORE INTO specs VALUES (?, ?, ?)", [planned.key, planned.spec.model_dump_json(), now]
        )
        state = self.db.execute("SELECT state FROM runs WHERE spec_key = ?", [planned.key]).fetchone()
        if state is None:
            self.db.execute(
                "INSERT INTO runs (run_id, spec_key, state, seed, steps_planned, non_embedding_params, total_params,"
                " flops_per_token, queued_at_utc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [planned.key[:RUN_ID_LENGTH], planned.key, State.QUEUED, planned.spec.seed, planned.spec.train.steps]
                + [counts.non_embedding_params, counts.total_params, counts.flops_per_token, now],
            )
            return 1
        if State(state[0]) in (State.QUEUED, State.RUNNING, *FINISHED):
            return 0
        self.db.execute(
            "UPDATE runs SET state = ?, queued_at_utc = ? WHERE spec_key = ?", [State.QUEUED, now, planned.key]
        )
        return 1

    def _name_sweep(self, sweep: Sweep) -> None:
        now = utc_now()
        self.db.execute(
            "INSERT INTO sweeps (name, baseline, source, spec_text, created_at_utc, updated_at_utc)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET baseline = excluded.baseline,"
            " source = excluded.source, spec_text = excluded.spec_text, updated_at_utc = excluded.updated_at_utc",
            [sweep.name, sweep.baseline, sweep.source, sweep.text, now, now],
        )
        (number,) = self.db.execute("SELECT sweep FROM sweeps WHERE name = ?", [sweep.name]).fetchone()
        self.db.execute("DELETE FROM sweep_runs WHERE sweep = ?", [number])
        for position, planned in enumerate(sweep.runs):
            self.db.execute(
                "INSERT INTO sweep_runs SELECT ?, ?, run, ?, ?, ? FROM runs WHERE spec_key = ?",
                [number, position, planned.arm, planned.label, json.dumps(dict(planned.point)), planned.key],
            )

    def _next_queued(self, sweep: str) -> Sequence[Any] | None:
        row: Sequence[Any] | None = self.db.execute(
            "SELECT run, run_id FROM sweeps JOIN sweep_runs USING (sweep) JOIN runs USING (run)"
            " WHERE name = ? AND state = ? ORDER BY priority DESC, position LIMIT 1",
            [sweep, State.QUEUED],
        ).fetchone()
        return row

    def _insert_attempt(self, run: int, token: str, scheduler: Process, slot: str, log_path: Path) -> int:
        cursor = self.db.execute(
            "INSERT INTO attempts (run, token, host, boot_id, scheduler_pid, scheduler_pid_started, slot,"
            " claimed_at_utc, log_path) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [run, token, scheduler.host, scheduler.boot_id, scheduler.pid, scheduler.started, slot, utc_now()]
            + [str(log_path)],
        )
        return int(cursor.lastrowid or 0)

    def _clear_rows(self, run: int) -> None:
        """A run starts from its first step: rows of an earlier, unfinished attempt would mix two curves."""
        for table in ("steps", "evals", "window_losses"):
            self.db.execute(f"DELETE FROM {table} WHERE run = ?", [run])

    def _event(self, run: int, attempt: int | None, kind: str, message: str) -> None:
        self.db.execute(
            "INSERT INTO events (run, attempt, at_utc, kind, message) VALUES (?, ?, ?, ?, ?)",
            [run, attempt, utc_now(), kind, message],
        )


def _open_attempt(row: Mapping[str, Any]) -> OpenAttempt:
    host, boot = row["host"], row["boot_id"]
    worker = Process(host, boot, row["pid"], row["pid_started"]) if row["pid"] else None
    scheduler = Process(host, boot, row["scheduler_pid"], row["scheduler_pid_started"])
    return OpenAttempt(row["run_id"], row["attempt"], worker, scheduler)
