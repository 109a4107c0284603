"""Opening runs.db: for writing (created and migrated when needed) or read-only (never changed)."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlite_utils import Database

from nlq.core.errors import NlqError
from nlq.store.backup import copies, copy, free_name
from nlq.store.migrations import APPLICATION_ID, migrations

BUSY_TIMEOUT_S = 60.0
RETRY_S = 0.05


class DamagedError(NlqError):
    """The file of a database is damaged."""


def utc_now() -> str:
    """The time in UTC, ISO 8601 with milliseconds; sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def open_writable(path: Path) -> Database:
    """The database at `path`, created where there is none and brought to this version's tables, with a backup before.

    Raises NlqError when the folder or file cannot be written, the file is no database of nlq, or a newer nlq made it.
    """
    _check_writable(path)
    with _readable_errors(path):
        db = _connect(f"{path.resolve().as_uri()}?mode=rwc")
        _check_ours(db, path)
        _keep_a_write_ahead_log(db)
        db.execute("PRAGMA synchronous = NORMAL")
        if migrations.pending(db):
            _migrate(db, path)
    return db


def open_read_only(path: Path, *, older: bool = False) -> Database:
    """The database at `path`, opened so that nothing can change it. Raises NlqError as `open_writable`.

    A database with an older version's tables is refused too, unless `older`.
    """
    if not path.is_file():
        raise NlqError(f"{path}: no such database", "queue a first sweep: nlq sweep specs/quickstart.yaml")
    with _readable_errors(path):
        db = _connect(f"{path.resolve().as_uri()}?{_read_only_mode(path)}")
        _check_ours(db, path)
    if not migrations.applied(db) and not older:
        raise NlqError(f"{path}: holds no sweep yet", "queue a first sweep: nlq sweep specs/quickstart.yaml")
    if migrations.pending(db) and not older:
        raise NlqError(
            f"{path}: made by an older nlq",
            f"bring it up to date: nlq db upgrade --db {path} (a backup is made first, and nothing is lost)",
        )
    return db


@contextmanager
def immediate(db: Database) -> Iterator[Database]:
    """One write transaction that takes its lock at the start, so that it cannot fail half-way for want of one."""
    db.conn.execute("BEGIN IMMEDIATE")
    try:
        yield db
    except BaseException:
        db.rollback()
        raise
    db.commit()


def _connect(uri: str) -> Database:
    conn = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    conn.execute("PRAGMA foreign_keys = ON")
    return Database(conn, execute_plugins=False)


def _read_only_mode(path: Path) -> str:
    """A write-ahead log needs its side files: where the folder cannot take them and none is there, nobody writes."""
    real = path.resolve()
    writers_log = real.with_name(real.name + "-wal")
    return "mode=ro" if os.access(real.parent, os.W_OK) or writers_log.exists() else "immutable=1"


def _keep_a_write_ahead_log(db: Database) -> None:
    """Readers and a writer then never wait for each other. SQLite does not wait by itself for its turn to switch."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while db.journal_mode != "wal":
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


def _migrate(db: Database, path: Path) -> None:
    """Under the write lock: whoever comes second finds nothing left to do."""
    with immediate(db):
        pending = migrations.pending(db)
        if pending and migrations.applied(db):
            before = _connect(f"{path.resolve().as_uri()}?mode=ro")
            copy(before.conn, free_name(path.with_name(f"{path.name}.before-{pending[0].name}")))
            before.close()
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        migrations.apply(db)


def _check_ours(db: Database, path: Path) -> None:
    """Refuse a database of another program, or of a newer nlq."""
    known = {migration.name for migration in migrations._migrations}
    db.execute("BEGIN")  # one view: another process may be making the tables right now
    applied, tables = {migration.name for migration in migrations.applied(db)}, db.table_names()
    db.rollback()
    if applied - known:
        raise NlqError(
            f"{path}: made by a newer nlq (it has {', '.join(sorted(applied - known))})",
            "upgrade nlq, or choose another database with --db PATH",
        )
    if tables and not applied:
        raise NlqError(f"{path}: a SQLite database, but not one of nlq's", "choose another with --db PATH or NLQ_DB")


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise NlqError(f"{path}: a folder, not a database", f"name a file in it: --db {path / 'runs.db'}")
    if not path.resolve().parent.is_dir():
        raise NlqError(f"{path.parent}: no such folder for the database", f"make it: mkdir -p {path.parent}")
    target = path if path.exists() else path.resolve().parent
    if not os.access(target, os.W_OK):
        raise NlqError(f"{target}: cannot be written", "choose another place with --db PATH or NLQ_DB")


def damaged(path: Path, what: str) -> DamagedError:
    """The error of a database whose file is damaged: where to look, and the latest backup."""
    latest = next(iter(copies(path.resolve())), None)
    back = f"go back to the latest backup: cp {latest} {path}" if latest else "no backup lies beside it"
    return DamagedError(f"{path}: the file is damaged ({what})", f"look closer: nlq db check --db {path}; {back}")


def explained(error: sqlite3.Error, path: Path) -> NlqError:
    """What a user can do about an error of SQLite."""
    text = str(error)
    if "locked" in text:
        hint = f"find it: fuser {path}; then the same command again"
        return NlqError(f"{path}: locked by another program for over {BUSY_TIMEOUT_S:.0f} s", hint)
    if "malformed" in text:
        return damaged(path, text)
    if "disk is full" in text or "disk I/O" in text:
        return NlqError(f"{path}: cannot be written ({text})", f"make room in {path.resolve().parent}, then again")
    if "readonly" in text or "unable to open" in text:
        return NlqError(f"{path}: cannot be opened ({text})", "choose another place with --db PATH")
    return NlqError(f"{path}: not a database ({text})", "choose another with --db PATH or NLQ_DB")


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise explained(error, path) from error
