"""Backups, older databases, damage, and file systems that several hosts share."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlite_utils import Database

from nlq.core.errors import NlqError
from nlq.core.launch import Process
from nlq.store import maintenance
from nlq.store.database import open_read_only, open_writable
from nlq.store.migrations import migrations

HERE = Process("here", "boot-1", 1, "10")
ELSEWHERE = Process("elsewhere", "boot-2", 1, "10")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    open_writable(path).close()
    return path


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A database with the first version's tables alone, and a row in it."""
    path = tmp_path / "runs.db"
    with closing(first_tables(path)) as first:
        first.execute("INSERT INTO specs VALUES ('key', '{}', 'then')")
        first.commit()
    return path


def first_tables(path: Path) -> sqlite3.Connection:
    database = Database(path, execute_plugins=False)
    migrations.apply(database, stop_before=migrations._migrations[1].name)
    return database.conn


def attempt_of(path: Path, host: Process, run: int = 1) -> None:
    """A run that a host trains."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO specs VALUES (?, '{}', 'then')", [f"key{run}"])
        connection.execute(
            "INSERT INTO runs (run, run_id, spec_key, state, attempt, seed, steps_planned, queued_at_utc)"
            " VALUES (?, ?, ?, 'running', ?, 0, 10, 'then')",
            [run, f"id{run}", f"key{run}", run],
        )
        connection.execute(
            "INSERT INTO attempts (attempt, run, token, host, boot_id, claimed_at_utc) VALUES (?, ?, ?, ?, ?, 'then')",
            [run, run, f"token{run}", host.host, host.boot_id],
        )
        connection.commit()


def on(kind: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    mounts = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint=str(folder), fstype=kind)]
    monkeypatch.setattr("psutil.disk_partitions", lambda all: mounts)  # noqa: A006


def test_a_backup_is_one_whole_file(db: Path, tmp_path: Path) -> None:
    attempt_of(db, HERE)
    with closing(sqlite3.connect(db)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE runs SET steps_done = 5")
        out = maintenance.backup(db, None)  # what is not committed is not in it, and nobody waits
        writer.rollback()
    assert out.parent == tmp_path
    assert out.name.startswith("runs.db.backup-")
    assert sorted(p.name for p in tmp_path.iterdir() if "backup" in p.name) == [out.name]
    with closing(sqlite3.connect(f"{out.as_uri()}?immutable=1", uri=True)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT run_id, steps_done FROM runs").fetchall() == [("id1", 0)]
    assert maintenance.check(out) == []


def test_a_backup_never_goes_over_a_file(db: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken.db"
    taken.write_text("mine")
    with pytest.raises(NlqError, match="never overwritten"):
        maintenance.backup(db, taken)
    assert taken.read_text() == "mine"
    with pytest.raises(NlqError, match="no such folder"):
        maintenance.backup(db, tmp_path / "nowhere" / "a.db")


def test_a_backup_that_fails_leaves_nothing(db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    before = set(tmp_path.iterdir())
    with pytest.raises(NlqError, match="No space left"):
        maintenance.backup(db, tmp_path / "out.db")
    assert set(tmp_path.iterdir()) - before <= {db.with_name("runs.db-wal"), db.with_name("runs.db-shm")}


def test_a_backup_on_a_read_only_file_system(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("nlq.store.backup._fill", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(NlqError, match=r"the backup cannot be written .*Read-only file system") as refused:
        maintenance.backup(db, None)
    assert "nlq db backup FILE" in refused.value.hint


def test_an_older_database_is_read_by_nobody_and_upgraded_by_writers(older: Path) -> None:
    with pytest.raises(NlqError) as refused:
        open_read_only(older)
    assert f"nlq db upgrade --db {older}" in refused.value.hint
    open_writable(older).close()
    open_read_only(older).close()
    (before,) = older.parent.glob("runs.db.before-*")
    assert before.name == f"runs.db.before-{migrations._migrations[1].name}"
    with closing(sqlite3.connect(before)) as copy:
        assert copy.execute("SELECT spec_key FROM specs").fetchall() == [("key",)]
        assert "micro_batch" not in [row[1] for row in copy.execute("PRAGMA table_info(runs)")]


def test_a_backup_of_an_earlier_upgrade_stays(older: Path) -> None:
    taken = older.with_name(f"runs.db.before-{migrations._migrations[1].name}")
    taken.write_text("mine")
    done = maintenance.upgrade(older)
    assert done.applied == [m.name for m in migrations._migrations[1:]]
    assert done.backup == taken.with_name(f"{taken.name}-2")
    assert taken.read_text() == "mine"
    assert maintenance.upgrade(older) == ([], None)


def test_no_backup_no_upgrade(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(NlqError, match="No space left"):
        open_writable(older)
    monkeypatch.undo()
    with pytest.raises(NlqError, match="older nlq"):
        open_read_only(older)


def open_it(path: Path) -> str:
    try:
        open_writable(path).close()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("is_older", [False, True], ids=["new", "older"])
def test_many_open_a_database_at_once(tmp_path: Path, is_older: bool) -> None:
    """Only one of them makes the tables, and nobody sees half of them."""
    path = tmp_path / "many.db"
    if is_older:
        first_tables(path).close()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(open_it, [path] * 24)) == [""] * 24
    assert maintenance.check(path) == []
    assert len(list(tmp_path.glob("many.db.before-*"))) == is_older


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE attempts SET ended = 'failed'", "running without an open attempt"),
        ("UPDATE runs SET state = 'completed'", "open attempt of a run that is not running it"),
        ("UPDATE runs SET state = 'completed', attempt = NULL", "completed before the planned last step"),
        ("INSERT INTO steps VALUES (1, 0, 1, 1, 1, 1, 1); UPDATE steps SET attempt = 9", "steps of an attempt"),
        ("INSERT INTO window_losses VALUES (1, 0, 'val', '', '', '', '', '')", "without their evaluation"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM specs", "rows of runs that point to no row of specs"),
    ],
)
def test_a_check_finds(db: Path, sql: str, what: str) -> None:
    attempt_of(db, HERE)
    assert maintenance.check(db) == []
    with closing(sqlite3.connect(db)) as connection:
        connection.executescript(sql.replace("''", "x''") if "window_losses" in sql else sql)
    found = maintenance.check(db)
    assert any(what in one.what for one in found)
    assert all(one.rows >= 1 for one in found)
    json.dumps([one._asdict() for one in found])


def damage(path: Path) -> None:
    """Overwrite the inner pages."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xa5" * (size - 4096 * 4))


def test_damage_is_found_before_anything_is_written(db: Path) -> None:
    attempt_of(db, HERE)
    kept = maintenance.backup(db, None)
    damage(db)
    content = db.read_bytes()
    with pytest.raises(NlqError) as refused:
        maintenance.ready(db, HERE)
    assert "damaged" in refused.value.message
    assert f"nlq db check --db {db}" in refused.value.hint
    assert f"cp {kept} {db}" in refused.value.hint
    assert maintenance.check(db)
    assert db.read_bytes() == content


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "fuse.sshfs", "9p"]
)
def test_a_network_file_system_is_for_one_host(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    on(kind, monkeypatch, tmp_path)
    assert maintenance.file_system(db) == kind
    attempt_of(db, HERE)
    (remark,) = maintenance.ready(db, HERE)
    assert kind in remark
    attempt_of(db, ELSEWHERE, run=2)
    with pytest.raises(NlqError, match=f"{kind}.*elsewhere") as refused:
        maintenance.ready(db, HERE)
    assert "nlq db backup" in refused.value.hint
    renamed = Process("a container of the same machine", "boot-2", 1, "10")
    with pytest.raises(NlqError, match="here"):
        maintenance.ready(db, renamed)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "tmpfs", "apfs", "fuseblk", ""])
def test_a_local_file_system_needs_no_remark(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    on(kind, monkeypatch, tmp_path)
    attempt_of(db, ELSEWHERE)
    assert maintenance.ready(db, HERE) == []
    assert maintenance.ready(tmp_path / "not yet.db", HERE) == []
