"""The migration that lets an evaluation's tokens, time and hashes be unknown, and the writing of imported runs."""

import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from nlq.core.imported import Imported
from nlq.core.launch import Process
from nlq.core.spec import RunSpec
from nlq.core.sweep import PlannedRun, Sweep
from nlq.store.database import open_writable
from nlq.store.imports import take
from nlq.store.migrations import APPLICATION_ID, migrations
from nlq.store.queue import Queue

EVALUATION = (1, 4, "val", 1, 2.5, 128, 3.5, "abc", "def")


def older(path: Path) -> Path:
    """A database of the tables before imports, with one evaluation."""
    db = Database(path)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    migrations.apply(db, stop_before="0004_import")
    db.execute("INSERT INTO specs VALUES ('key', '{}', '')")
    db.execute(
        "INSERT INTO runs (run_id, spec_key, state, seed, steps_planned, steps_done, queued_at_utc)"
        " VALUES ('id', 'key', 'running', 0, 8, 8, '')"
    )
    db.execute("INSERT INTO attempts (run, token, host, claimed_at_utc) VALUES (1, 't', 'h', '')")
    db.execute("UPDATE runs SET attempt = 1")
    db.execute("INSERT INTO evals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", EVALUATION)
    db.execute("UPDATE runs SET state = 'completed'")
    db.conn.commit()
    db.close()
    return path


def test_older_evaluations_stay_and_rows_of_an_ended_attempt_are_refused(tmp_path: Path) -> None:
    db = open_writable(older(tmp_path / "runs.db"))
    assert db.execute("SELECT * FROM evals").fetchall() == [EVALUATION]
    with pytest.raises(sqlite3.IntegrityError, match="not the current one"):
        db.execute("INSERT INTO evals (run, step, split, attempt) VALUES (1, 5, 'val', 1)")


def test_a_run_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Imported({"seed": 0}, {"val": {0: 5.5, 8: 2.5}}, 8, None, "/a.csv", "sha")
    sweep = Sweep("s", "a", "a.yaml", "", (PlannedRun("a", "A", {}, RunSpec(), "key"),))
    queue = Queue(tmp_path / "runs.db")
    with monkeypatch.context() as patch:
        patch.setattr(queue, "name_sweep", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            take(queue, sweep, {"key": run})
    assert queue.db.execute("SELECT COUNT(*) FROM runs").fetchone() == (0,)
    assert take(queue, sweep, {"key": run}) == ["key"]
    assert take(queue, sweep, {"key": run}) == []
    assert queue.db.execute("SELECT state, steps_done FROM runs").fetchall() == [("completed", 8)]
    assert queue.db.execute("SELECT host, ended, device, imported_sha256 FROM attempts").fetchall() == [
        ("imported", "completed", None, "sha")
    ]
    assert queue.claim(None, Process("host", "boot", 1, "10"), "cpu", tmp_path) is None
