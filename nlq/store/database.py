"""Opening runs.db: for writing (created and migrated when needed) or read-only (never changed)."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlite_utils import Database

from nlq.core.errors import NlqError
from nlq.store.migrations import APPLICATION_ID, migrations

BUSY_TIMEOUT_S = 60.0


def utc_now() -> str:
    """The time in UTC, ISO 8601 with milliseconds; sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def open_writable(path: Path) -> Database:
    """The database at `path`, created where there is none and brought to this version's tables.

    Raises NlqError when the folder or file cannot be written, the file is no database of nlq, or a newer nlq made it.
    """
    _check_writable(path)
    with _readable_errors(path):
        db = _connect(f"{path.resolve().as_uri()}?mode=rwc")
        _check_ours(db, path)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        if migrations.pending(db):
            _migrate(db)
    return db


def open_read_only(path: Path) -> Database:
    """The database at `path`, opened so that nothing can change it. Raises NlqError as `open_writable`."""
    if not path.is_file():
        raise NlqError(f"{path}: no such database", "queue a first sweep: nlq sweep specs/quickstart.yaml")
    with _readable_errors(path):
        db = _connect(f"{path.resolve().as_uri()}?{_read_only_mode(path)}")
        _check_ours(db, path)
    if migrations.pending(db):
        raise NlqError(f"{path}: made by an older nlq", f"bring it up to date: nlq db upgrade --db {path}")
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
    writers_log = path.with_name(path.name + "-wal")
    return "mode=ro" if os.access(path.parent, os.W_OK) or writers_log.exists() else "immutable=1"


def _migrate(db: Database) -> None:
    with immediate(db):
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        migrations.apply(db)


def _check_ours(db: Database, path: Path) -> None:
    """Refuse a database of another program, or of a newer nlq."""
    known = {migration.name for migration in migrations._migrations}
    applied = {migration.name for migration in migrations.applied(db)}
    if applied - known:
        raise NlqError(
            f"{path}: made by a newer nlq (it has {', '.join(sorted(applied - known))})",
            "upgrade nlq, or choose another database with --db PATH",
        )
    if db.table_names() and not applied:
        raise NlqError(f"{path}: a SQLite database, but not one of nlq's", "choose another with --db PATH or NLQ_DB")


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise NlqError(f"{path}: a folder, not a database", f"name a file in it: --db {path / 'runs.db'}")
    if not path.resolve().parent.is_dir():
        raise NlqError(f"{path.parent}: no such folder for the database", f"make it: mkdir -p {path.parent}")
    target = path if path.exists() else path.resolve().parent
    if not os.access(target, os.W_OK):
        raise NlqError(f"{target}: cannot be written", "choose another place with --db PATH or NLQ_DB")


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise NlqError(f"{path}: locked by another program for over {BUSY_TIMEOUT_S:.0f} s") from error
        if "readonly" in str(error) or "unable to open" in str(error):
            raise NlqError(f"{path}: cannot be opened ({error})", "choose another place with --db PATH") from error
        raise NlqError(f"{path}: not a database ({error})", "choose another with --db PATH or NLQ_DB") from error
