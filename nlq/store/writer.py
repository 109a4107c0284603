"""The rows of one attempt on their way into runs.db: gathered in memory, written between steps."""

import math
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np

from nlq.core.run import EvalRow, StepRow, WindowLosses
from nlq.store.database import immediate, open_writable, utc_now
from nlq.store.migrations import STALE_ATTEMPT

FLUSH_S = 1.0


class StaleAttemptError(Exception):
    """The database refused rows: another attempt of the run is the current one, or the run has ended."""


class RunWriter:
    """A training sink that writes to the database about once a second, outside the timed step.

    Raises StaleAttemptError once the attempt is no longer the run's current one.
    """

    def __init__(self, path: Path, attempt: int, tokens_per_step: int) -> None:
        self.db = open_writable(path)
        self.attempt = attempt
        self.tokens_per_step = tokens_per_step
        (self.run,) = self.db.execute("SELECT run FROM attempts WHERE attempt = ?", [attempt]).fetchone()
        self._steps: list[StepRow] = []
        self._evals: list[EvalRow] = []
        self._flushed = time.monotonic()

    def step(self, row: StepRow) -> None:
        """Take one update. While another program holds the database, rows wait in memory."""
        self._steps.append(row)
        if time.monotonic() - self._flushed > FLUSH_S:
            try:
                self.flush()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                self._flushed = time.monotonic()

    def evaluation(self, row: EvalRow) -> None:
        """Take one evaluation."""
        self._evals.append(row)

    def flush(self) -> None:
        """Write what was gathered, with the progress that `nlq status` shows and the heartbeat."""
        try:
            with immediate(self.db):
                self._write_steps()
                self._write_evals()
                self.db.execute("UPDATE attempts SET heartbeat_at_utc = ? WHERE attempt = ?", [utc_now(), self.attempt])
        except sqlite3.IntegrityError as error:
            if STALE_ATTEMPT not in str(error):
                raise
            raise StaleAttemptError(str(error)) from error
        self._steps, self._evals, self._flushed = [], [], time.monotonic()

    def close(self, data_hash: str, peak_memory_bytes: int | None) -> None:
        """Write the rest and what is known only at the end."""
        self.flush()
        with immediate(self.db):
            self.db.execute("UPDATE runs SET data_hash = ? WHERE attempt = ?", [data_hash, self.attempt])
            self.db.execute(
                "UPDATE attempts SET peak_memory_bytes = ? WHERE attempt = ?", [peak_memory_bytes, self.attempt]
            )
        self.db.close()

    def _write_steps(self) -> None:
        if not self._steps:
            return
        self.db.conn.executemany(
            "INSERT INTO steps (run, step, attempt, loss_nats, grad_norm, lr, step_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(self.run, r.step, self.attempt, *r[1:]) for r in self._steps],
        )
        last = self._steps[-1]
        busy_ms = sum(row.step_ms for row in self._steps)
        speed = 1000 * self.tokens_per_step * len(self._steps) / busy_ms if busy_ms else None
        self.db.execute(
            "UPDATE runs SET steps_done = ?, last_loss_nats = ?, tokens_per_s = ? WHERE run = ? AND attempt = ?",
            [last.step + 1, _finite(last.loss_nats), speed, self.run, self.attempt],
        )

    def _write_evals(self) -> None:
        for row in self._evals:
            self.db.execute(
                "INSERT INTO evals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [self.run, row.step, row.split, self.attempt, *row[2:7]],
            )
            blobs = pack(row.windows)
            self.db.execute("INSERT INTO window_losses VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [self.run, *row[:2], *blobs])


def pack(windows: WindowLosses) -> list[bytes]:
    """Window losses as little-endian blobs: sums float64, counts and ids int64."""
    kinds = ("<f8", "<i8", "<i8", "<f8", "<i8")
    return [np.asarray(array, dtype=kind).tobytes() for array, kind in zip(windows, kinds, strict=True)]


def unpack(blobs: list[bytes]) -> WindowLosses:
    """The inverse of `pack`."""
    kinds = ("<f8", "<i8", "<i8", "<f8", "<i8")
    return WindowLosses(*(np.frombuffer(blob, dtype=kind) for blob, kind in zip(blobs, kinds, strict=True)))


def _finite(value: float) -> Any:
    return value if math.isfinite(value) else None
