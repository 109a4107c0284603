"""The queue: what is waiting, who trains it, and how it ended. Every change is one short transaction."""

import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from nlq.core.launch import TOGETHER, Process, slot_names
from nlq.core.run import FINISHED, CodeState, Provenance, State
from nlq.core.spec import RunSpec
from nlq.core.sweep import PlannedRun, Sweep
from nlq.store import claims
from nlq.store.database import immediate, open_writable, utc_now
from nlq.store.members import place

RUN_ID_LENGTH = 12
MOST_LOSSES = 2
"""How often a run goes back to the queue by itself, without progress, after its process or device was gone."""


@dataclass(frozen=True)
class Claim:
    """The right to train one run: rows are taken only from the attempt that is the run's current one.

    `slot` is where: several names joined where the run has several devices.
    """

    run_id: str
    attempt: int
    token: str
    slot: str
    log_path: Path


@dataclass(frozen=True)
class OpenAttempt:
    """An attempt that has not ended, as the database knows it. `worker` is None until the process has been started."""

    run_id: str
    attempt: int
    worker: Process | None
    scheduler: Process
    slot: str
    heartbeat_at_utc: str | None


@dataclass(frozen=True)
class Order:
    """What a worker is to do: its attempt, the run's spec, the code that the run was queued with, and its slot."""

    run_id: str
    attempt: int
    spec: RunSpec
    source_sha256: str | None
    slot: str = ""


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
        """Close the connection, the write-ahead log written back: the one file is then the whole database."""
        with suppress(sqlite3.OperationalError):  # somebody else is at work; the last to leave does it
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.db.close()

    def enqueue(self, sweep: Sweep, counts: Mapping[str, Counts], code: CodeState) -> int:
        """Put a sweep's runs in the queue and return how many were not there before; `counts` is by spec key.

        A run that is queued, running or finished stays as it is; one that failed or was cancelled is queued again.
        """
        with immediate(self.db):
            new = sum(self.enqueue_run(planned, counts[planned.key], code) for planned in sweep.runs)
            self.name_sweep(sweep)
        return new

    def sweep_source(self, name: str) -> str | None:
        """The spec file that a sweep of this name was last queued from, or None."""
        row = self.db.execute("SELECT source FROM sweeps WHERE name = ?", [name]).fetchone()
        return None if row is None else str(row[0])

    def claim(self, sweep: str | None, scheduler: Process, slot: str, logs: Path, most: int = 1) -> Claim | None:
        """Take the next queued run of a sweep (of any sweep when None) for a slot of the scheduler's host.

        `slot` may be several, joined: the run takes as many as it needs, the first. Runs that need more than `most`
        devices are passed over. None when no run waits, when it needs more slots than these, or when other runs are
        in them.
        """
        token = secrets.token_hex(16)
        with immediate(self.db):
            slots = claims.not_taken(self.db, slot_names(slot), scheduler.host)
            row = claims.next_queued(self.db, sweep, most) if slots else None
            if row is None or row[2] > len(slots):
                return None
            run, run_id, devices = row
            slot, log_path = TOGETHER.join(slots[:devices]), logs / f"{run_id}-{token[:6]}.log"
            attempt = claims.insert_attempt(self.db, run, token, scheduler, slot, log_path)
            self.db.execute(
                "UPDATE runs SET state = ?, attempt = ?, started_at_utc = coalesce(started_at_utc, ?),"
                " failure_class = NULL, failure_message = NULL, tokens_per_s = NULL WHERE run = ?",
                [State.RUNNING, attempt, utc_now(), run],
            )
            self._event(run, attempt, "claimed", f"slot {slot}")
        return Claim(run_id, attempt, token, slot, log_path)

    def queued_beyond(self, sweep: str | None, most: int) -> int:
        """How many queued runs of a sweep (of any sweep when None) need more than `most` devices."""
        return claims.queued_beyond(self.db, sweep, most)

    def order(self, token: str) -> Order:
        """What the worker that holds `token` is to do."""
        row = self.db.execute(
            "SELECT run_id, attempts.attempt, spec, runs.micro_batch, queued_source_sha256, slot FROM attempts"
            " JOIN runs USING (run) JOIN specs USING (spec_key) WHERE token = ?",
            [token],
        ).fetchone()
        spec = RunSpec.model_validate_json(row[2])
        if row[3] is not None:
            spec = spec.resolved(train={"micro_batch": row[3]})
        return Order(row[0], row[1], spec, row[4], row[5] or "")

    def launched(self, attempt: int, worker: Process) -> bool:
        """Record the process that trains an attempt. False when the attempt has ended: the process must not train."""
        with immediate(self.db):
            done = self.db.execute(
                "UPDATE attempts SET pid = ?, pid_started = ? WHERE attempt = ? AND ended IS NULL",
                [worker.pid, worker.started, attempt],
            )
        return done.rowcount == 1

    def started(self, attempt: int, provenance: Provenance) -> None:
        """Record where and with what an attempt runs; the worker says so itself."""
        p = provenance
        with immediate(self.db):
            self.db.execute(
                "UPDATE attempts SET started_at_utc = ?, heartbeat_at_utc = ?, device = ?, threads = ?,"
                " nlq_version = ?, torch_version = ?, python_version = ?, git_commit = ?, git_dirty = ?,"
                " source_sha256 = ?, device_uuid = ? WHERE attempt = ?",
                [utc_now(), utc_now(), p.device, p.threads, p.nlq_version, p.torch_version, p.python_version]
                + [p.git_commit, p.git_dirty, p.source_sha256, p.device_uuid, attempt],
            )

    def rows_reach(self, attempt: int, step: int, eval_steps: Iterable[int]) -> bool:
        """Whether all rows before `step` are in the database, so that the run may go on from there."""
        (run,) = self.db.execute("SELECT run FROM attempts WHERE attempt = ?", [attempt]).fetchone()
        count = "SELECT COUNT(*), COUNT(DISTINCT step) FROM {} WHERE run = ? AND step < ?"
        (steps, _), (_, evals) = (self.db.execute(count.format(t), [run, step]).fetchone() for t in ("steps", "evals"))
        return bool(steps == step and evals == sum(1 for at in eval_steps if at < step))

    def begin(self, attempt: int, step: int, train_tokens: int | None = None) -> None:
        """Training of an attempt begins at `step`, on a text of `train_tokens`: rows from there on are replaced."""
        with immediate(self.db):
            (run,) = self.db.execute("SELECT run FROM attempts WHERE attempt = ?", [attempt]).fetchone()
            for table in ("steps", "evals", "window_losses"):
                self.db.execute(
                    f"DELETE FROM {table} WHERE run = ? AND step >= ? AND"
                    " EXISTS (SELECT 1 FROM runs WHERE runs.run = ? AND runs.attempt = ?)",
                    [run, step, run, attempt],
                )
            self.db.execute("UPDATE runs SET steps_done = ? WHERE run = ? AND attempt = ?", [step, run, attempt])
            began = "UPDATE attempts SET resumed_step = ?, train_tokens = ? WHERE attempt = ?"
            self.db.execute(began, [step, train_tokens, attempt])
            if step:
                self._event(run, attempt, "resumed", f"from the checkpoint at step {step}")

    def used(self, attempt: int, energy_joules: float | None) -> None:
        """Record the energy that an attempt's devices used while it trained; None where it is not known."""
        with immediate(self.db):
            self.db.execute("UPDATE attempts SET energy_joules = ? WHERE attempt = ?", [energy_joules, attempt])

    def note(self, attempt: int, kind: str, message: str) -> None:
        """Add an event to the run of an attempt."""
        with immediate(self.db):
            (run,) = self.db.execute("SELECT run FROM attempts WHERE attempt = ?", [attempt]).fetchone()
            self._event(run, attempt, kind, message)

    def finish(
        self,
        attempt: int,
        state: State,
        *,
        exit_code: int | None = None,
        diverged_step: int | None = None,
        failure_class: str | None = None,
        message: str = "",
        then: State | None = None,
    ) -> bool:
        """End an attempt as `state` and, where it is the run's current one, the run as `then` (or `state`).

        False when the attempt had ended before: nothing changes then.
        """
        with immediate(self.db):
            return self._finish(attempt, state, then or state, exit_code, diverged_step, failure_class, message)

    def lose(self, attempt: int, why: str, *, exit_code: int | None = None, failure_class: str = "killed") -> None:
        """End an attempt whose process or device is gone: LOST → QUEUED, or FAILED when that has happened too often."""
        if self._losses_without_progress(attempt) < MOST_LOSSES:
            self.finish(attempt, State.LOST, exit_code=exit_code, message=why, then=State.QUEUED)
        else:
            self.finish(attempt, State.FAILED, exit_code=exit_code, failure_class=failure_class, message=why)

    def give_back(self, attempt: int, why: str) -> None:
        """End an attempt that was asked to stop; its run is QUEUED again and nothing is held against it."""
        self.finish(attempt, State.CANCELLED, message=why, then=State.QUEUED)

    def halve(self, attempt: int, micro_batch: int, why: str) -> None:
        """End an attempt that ran out of memory; its run is QUEUED once more with a smaller micro-batch."""
        self.finish(attempt, State.FAILED, failure_class="out_of_memory", message=why, then=State.QUEUED)
        with immediate(self.db):
            self.db.execute("UPDATE runs SET micro_batch = ? WHERE attempt = ?", [micro_batch, attempt])

    def was_halved(self, attempt: int) -> bool:
        """Whether the run of an attempt is already on its second try with a smaller micro-batch."""
        row = self.db.execute("SELECT micro_batch FROM runs WHERE attempt = ?", [attempt]).fetchone()
        return row is not None and row[0] is not None

    def open_attempts(self) -> list[OpenAttempt]:
        """Attempts that have not ended, of all schedulers."""
        rows = self.db.query(
            "SELECT run_id, attempts.* FROM attempts JOIN runs USING (run) WHERE ended IS NULL"
            " ORDER BY attempts.attempt"
        )
        return [_open_attempt(row) for row in rows]

    def adopt(self, orphan: OpenAttempt, scheduler: Process) -> bool:
        """Take over an attempt whose scheduler is gone. False when another scheduler was quicker."""
        with immediate(self.db):
            done = self.db.execute(
                "UPDATE attempts SET scheduler_pid = ?, scheduler_pid_started = ?"
                " WHERE attempt = ? AND ended IS NULL AND scheduler_pid = ? AND scheduler_pid_started = ?",
                [scheduler.pid, scheduler.started, orphan.attempt, orphan.scheduler.pid, orphan.scheduler.started],
            )
        return done.rowcount == 1

    def cancel(self, run_ids: Sequence[str]) -> list[OpenAttempt]:
        """QUEUED and RUNNING → CANCELLED; returns the attempts whose processes must now be ended."""
        message = "cancelled by request"
        with immediate(self.db):
            doomed = [a for a in self.open_attempts() if a.run_id in set(run_ids)]
            for attempt in doomed:
                self._finish(attempt.attempt, State.CANCELLED, State.CANCELLED, None, None, None, message)
            self._change(run_ids, (State.QUEUED, State.RUNNING), State.CANCELLED, message)
        return doomed

    def retry(self, run_ids: Sequence[str]) -> int:
        """FAILED and CANCELLED → QUEUED, earlier losses forgiven; returns how many."""
        with immediate(self.db):
            return self._change(run_ids, (State.FAILED, State.CANCELLED), State.QUEUED, "tried again by request")

    def prioritise(self, run_ids: Sequence[str], priority: int) -> int:
        """Runs of a higher priority are claimed first; returns how many runs were changed."""
        with immediate(self.db):
            return self.db.execute(
                "UPDATE runs SET priority = ? WHERE run_id IN (SELECT value FROM json_each(?))",
                [priority, json.dumps(list(run_ids))],
            ).rowcount

    def states(self, sweep: str | None) -> dict[State, int]:
        """How many runs of a sweep (of the whole database when None) are in each state."""
        chosen = (
            ""
            if sweep is None
            else " WHERE run IN (SELECT run FROM sweeps JOIN sweep_runs USING (sweep) WHERE name = ?)"
        )
        rows = self.db.execute(
            f"SELECT state, COUNT(*) FROM runs{chosen} GROUP BY state", [] if sweep is None else [sweep]
        )
        return {State(state): count for state, count in rows}

    def _finish(
        self,
        attempt: int,
        state: State,
        then: State,
        exit_code: int | None,
        diverged_step: int | None,
        failure_class: str | None,
        message: str,
    ) -> bool:
        found = self.db.execute("SELECT run FROM attempts WHERE attempt = ? AND ended IS NULL", [attempt]).fetchone()
        if found is None:
            return False
        now = utc_now()
        self.db.execute(
            "UPDATE attempts SET ended = ?, exit_code = ?, finished_at_utc = ? WHERE attempt = ?",
            [state, exit_code, now, attempt],
        )
        self.db.execute(
            "UPDATE runs SET state = ?, diverged_step = ?, failure_class = ?, failure_message = ?,"
            " finished_at_utc = ? WHERE run = ? AND attempt = ? AND state = ?",
            [then, diverged_step, failure_class, message or None, None if then is State.QUEUED else now]
            + [found[0], attempt, State.RUNNING],
        )
        self._event(found[0], attempt, state, message)
        return True

    def _losses_without_progress(self, attempt: int) -> int:
        """Losses of a run since it was last queued on purpose and since an attempt began at its last checkpoint."""
        (losses,) = self.db.execute(
            "WITH tries AS (SELECT attempts.attempt, ended, coalesce(resumed_step, 0) AS step FROM attempts"
            " JOIN runs USING (run) WHERE run = (SELECT run FROM attempts WHERE attempt = ?)"
            " AND attempts.attempt > coalesce(forgiven_attempt, 0)),"
            " first AS (SELECT min(attempt) AS attempt FROM tries WHERE step = (SELECT max(step) FROM tries))"
            " SELECT COUNT(*) FROM tries WHERE ended = ? AND attempt >= (SELECT attempt FROM first)",
            [attempt, State.LOST],
        ).fetchone()
        return int(losses)

    def _change(self, run_ids: Sequence[str], source: tuple[State, ...], state: State, message: str) -> int:
        rows = self.db.execute(
            "UPDATE runs SET state = ?, micro_batch = NULL, forgiven_attempt = attempt"
            " WHERE run_id IN (SELECT value FROM json_each(?))"
            " AND state IN (SELECT value FROM json_each(?)) RETURNING run, attempt",
            [state, json.dumps(list(run_ids)), json.dumps(source)],
        ).fetchall()
        for run, attempt in rows:
            self._event(run, attempt, state, message)
        return len(rows)

    def enqueue_run(self, planned: PlannedRun, counts: Counts, code: CodeState) -> int:
        """Put one run in the queue as `enqueue` does, inside a transaction; 1 if it was not there before, else 0."""
        now = utc_now()
        row = self.db.execute("SELECT state FROM runs WHERE spec_key = ?", [planned.key]).fetchone()
        state = None if row is None else State(row[0])
        if state in (State.RUNNING, *FINISHED):
            return 0
        # What is recorded but not hashed (micro-batch, checkpoints) follows the latest spec until the run has begun.
        self.db.execute(
            "INSERT INTO specs VALUES (?, ?, ?) ON CONFLICT (spec_key) DO UPDATE SET spec = excluded.spec",
            [planned.key, planned.spec.model_dump_json(), now],
        )
        if state is None:
            self.db.execute(
                "INSERT INTO runs (run_id, spec_key, state, seed, steps_planned, non_embedding_params, total_params,"
                " flops_per_token, queued_at_utc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [planned.key[:RUN_ID_LENGTH], planned.key, State.QUEUED, planned.spec.seed, planned.spec.train.steps]
                + [counts.non_embedding_params, counts.total_params, counts.flops_per_token, now],
            )
        if state in (State.FAILED, State.CANCELLED):
            self._change([planned.key[:RUN_ID_LENGTH]], (state,), State.QUEUED, "queued again")
        self.db.execute(
            "UPDATE runs SET queued_source_sha256 = ?, devices = ? WHERE spec_key = ?",
            [code.source_sha256, planned.spec.train.devices, planned.key],
        )
        return int(state is not State.QUEUED)

    def name_sweep(self, sweep: Sweep) -> None:
        """Let a sweep's name stand for its runs, which are in the queue already; inside a transaction."""
        now = utc_now()
        self.db.execute(
            "INSERT INTO sweeps (name, baseline, source, spec_text, created_at_utc, updated_at_utc)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET baseline = excluded.baseline,"
            " source = excluded.source, spec_text = excluded.spec_text, updated_at_utc = excluded.updated_at_utc",
            [sweep.name, sweep.baseline, sweep.source, sweep.text, now, now],
        )
        (number,) = self.db.execute("SELECT sweep FROM sweeps WHERE name = ?", [sweep.name]).fetchone()
        self.db.execute("DELETE FROM sweep_runs WHERE sweep = ?", [number])
        place(self.db, number, sweep.runs)

    def _event(self, run: int, attempt: int | None, kind: str, message: str) -> None:
        self.db.execute(
            "INSERT INTO events (run, attempt, at_utc, kind, message) VALUES (?, ?, ?, ?, ?)",
            [run, attempt, utc_now(), kind, message],
        )


def _open_attempt(row: Mapping[str, Any]) -> OpenAttempt:
    host, boot = row["host"], row["boot_id"]
    worker = Process(host, boot, row["pid"], row["pid_started"]) if row["pid"] else None
    scheduler = Process(host, boot, row["scheduler_pid"], row["scheduler_pid_started"])
    return OpenAttempt(row["run_id"], row["attempt"], worker, scheduler, row["slot"], row["heartbeat_at_utc"])
