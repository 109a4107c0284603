"""Looking after runs.db: is it whole, may this host write it, a backup while it is in use, and newer tables."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psutil
from sqlite_utils import Database

from nlq.core.errors import NlqError
from nlq.core.launch import Process
from nlq.core.run import IMPORTED
from nlq.store.backup import copies, copy, free_name
from nlq.store.database import DamagedError, damaged, explained, open_read_only, open_writable
from nlq.store.migrations import migrations

QUICK_CHECK_BYTES = 200 << 20
"""Larger files are not looked through before writing: 100 MB take about half a second."""

SHARED_FILE_SYSTEMS = """
9p afs beegfs beegfs_nodev ceph ceph-fuse cifs coda davfs davfs2 gcsfuse gfs2 glusterfs gpfs juicefs
lizardfs lustre moosefs ncpfs nfs nfs3 nfs4 ocfs2 orangefs panfs pvfs2 rclone s3fs smb smb2 smb3
smbfs sshfs virtiofs vboxsf webdav wekafs
"""
"""File systems that several hosts may have open at once, where SQLite's locks and shared memory cannot be relied on;
those in user space also as `fuse.NAME`."""

EXAMPLES = 5


class Finding(NamedTuple):
    """Something that is wrong with a database: what, in how many rows, and a few run ids or details."""

    what: str
    rows: int
    examples: list[str]


class Upgrade(NamedTuple):
    """The migrations that were applied, and the backup that was made before."""

    applied: list[str]
    backup: Path | None


_DOUBTS = {
    "running without an open attempt": """
        SELECT run_id FROM runs WHERE state = 'running' AND NOT EXISTS
            (SELECT 1 FROM attempts AS a WHERE a.attempt = runs.attempt AND a.run = runs.run AND a.ended IS NULL)""",
    "open attempt of a run that is not running it": """
        SELECT run_id FROM attempts AS a JOIN runs USING (run)
        WHERE a.ended IS NULL AND (runs.state <> 'running' OR runs.attempt <> a.attempt)""",
    "completed before the planned last step": """
        SELECT run_id FROM runs WHERE state = 'completed' AND steps_done <> steps_planned""",
    "steps of an attempt that does not exist": """
        SELECT run_id FROM (SELECT DISTINCT run, attempt FROM steps) AS s JOIN runs USING (run)
        WHERE NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.attempt = s.attempt AND a.run = s.run)""",
    "evaluations of an attempt that does not exist": """
        SELECT run_id FROM (SELECT DISTINCT run, attempt FROM evals) AS e JOIN runs USING (run)
        WHERE NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.attempt = e.attempt AND a.run = e.run)""",
    "losses of windows without their evaluation": """
        SELECT DISTINCT run_id FROM window_losses AS w JOIN runs USING (run)
        WHERE NOT EXISTS (SELECT 1 FROM evals AS e WHERE e.run = w.run AND e.step = w.step AND e.split = w.split)""",
}
"""What cannot be where nlq alone has written, by run id."""


def ready(path: Path, host: Process) -> list[str]:
    """Look at a database before a command writes to it, without changing it; remarks for the user.

    Raises NlqError when the file is damaged, or lies on a network file system and another host has trained in it.
    """
    if not path.is_file():
        return _remarks(path, set())
    with closing(open_read_only(path, older=True)) as db:
        try:
            if path.stat().st_size <= QUICK_CHECK_BYTES:
                _refuse_damage(db, path)
            others = _other_hosts(db, host)
        except sqlite3.DatabaseError as error:
            raise explained(error, path) from error
    return _remarks(path, others)


def up_to_date(path: Path, host: Process) -> list[str]:
    """As `ready`, for a command that needs a database that is there, and brings it to this version's tables."""
    with closing(open_read_only(path, older=True)) as db:
        pending = migrations.pending(db)
    remarks = ready(path, host)
    if pending:
        open_writable(path).close()
    return remarks


def backup(path: Path, out: Path | None) -> Path:
    """Copy a database while others write to it; beside it, named by the time in UTC, unless `out` says where."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    target = out or free_name(path.with_name(f"{path.name}.backup-{stamp}"))
    if not target.resolve().parent.is_dir():
        raise NlqError(f"{target.parent}: no such folder for the backup", f"make it: mkdir -p {target.parent}")
    with closing(open_read_only(path, older=True)) as db:
        copy(db.conn, target)
    return target


def check(path: Path) -> list[Finding]:
    """Everything that is wrong with a database; empty when it is whole. It is read, not changed."""
    try:
        with closing(open_read_only(path)) as db:
            return [*_integrity(db), *_references(db), *_doubts(db)]
    except (sqlite3.DatabaseError, DamagedError) as error:
        return [Finding("the file is damaged", 1, [str(error)])]


def upgrade(path: Path) -> Upgrade:
    """Bring a database to this version's tables, with a backup before. Nothing is done where nothing is to do."""
    with closing(open_read_only(path, older=True)) as db:
        pending = [migration.name for migration in migrations.pending(db)]
    before = set(copies(path))
    open_writable(path).close()
    return Upgrade(pending, next((found for found in copies(path) if found not in before), None))


def file_system(path: Path) -> str:
    """The type of the file system that holds a path: of the mount point nearest above it."""
    where = path.resolve()
    mounts = {Path(mount.mountpoint): mount.fstype for mount in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in (where, *where.parents) if folder in mounts), "")


def _remarks(path: Path, others: set[str]) -> list[str]:
    kind = file_system(path)
    if kind.lower().removeprefix("fuse.") not in SHARED_FILE_SYSTEMS.split():
        return []
    if others:
        raise NlqError(
            f"{path}: on a network file system ({kind}), and {', '.join(sorted(others))} has trained in it too: "
            "two hosts that write one SQLite file there damage it",
            "give each host a database on a disk of its own: --db PATH or NLQ_DB; "
            "go on from this one: nlq db backup /a/local/disk/runs.db, then --db /a/local/disk/runs.db; "
            "reading it stays possible: nlq status, nlq report",
        )
    return [f"{path} lies on a network file system ({kind}): fine while no other host writes to it"]


def _other_hosts(db: Database, host: Process) -> set[str]:
    """Hosts of attempts other than this one; a container that was renamed is known by the machine's boot."""
    rows = db.execute("SELECT DISTINCT host, boot_id FROM attempts WHERE host <> ?", [IMPORTED]).fetchall()
    return {name for name, boot in rows if name != host.host and boot != host.boot_id}


def _refuse_damage(db: Database, path: Path) -> None:
    (first,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if first != "ok":
        raise damaged(path, first)


def _integrity(db: Database) -> Iterator[Finding]:
    lines = [row[0] for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"]
    if lines:
        yield Finding("the file is damaged", len(lines), lines[:EXAMPLES])


def _references(db: Database) -> Iterator[Finding]:
    """Rows that point to nothing. SQLite gives no row number where a table has none."""
    sql = 'SELECT "table", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2'
    for table, parent, count in db.execute(sql).fetchall():
        yield Finding(f"rows of {table} that point to no row of {parent}", count, [])


def _doubts(db: Database) -> Iterator[Finding]:
    for what, sql in _DOUBTS.items():
        ids = [row[0] for row in db.execute(sql)]
        if ids:
            yield Finding(what, len(ids), ids[:EXAMPLES])
