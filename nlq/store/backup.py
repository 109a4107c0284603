"""Copies of a database: taken while others write to it, whole or not at all, and never over a file that is there."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from nlq.core.errors import NlqError


def copy(source: sqlite3.Connection, target: Path) -> None:
    """Copy the database of a connection to `target` as one consistent file. Raises NlqError and leaves nothing."""
    if target.exists():
        raise NlqError(f"{target}: exists already, and a backup is never overwritten", "name another file")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        _fill(source, part)
        _place(part, target)
    except (sqlite3.Error, OSError) as error:
        hint = "nlq db backup FILE, in a folder that you may write"
        raise NlqError(f"{target}: the backup cannot be written ({_why(error, target)})", hint) from error
    finally:
        for left in (part, part.with_name(f"{part.name}-journal")):
            with suppress(OSError):  # a file system that is read-only refuses also for a file that is not there
                left.unlink(missing_ok=True)


def copies(path: Path) -> list[Path]:
    """Backups that lie beside a database, the latest first."""
    found = (*path.parent.glob(f"{path.name}.backup-*"), *path.parent.glob(f"{path.name}.before-*"))
    return sorted(found, key=lambda copy: copy.stat().st_mtime, reverse=True)


def free_name(path: Path) -> Path:
    """`path`, or the first of `path-2`, `path-3`, … that is not taken."""
    name, number = path, 1
    while name.exists():
        number += 1
        name = path.with_name(f"{path.name}-{number}")
    return name


def _fill(source: sqlite3.Connection, part: Path) -> None:
    """One step of SQLite's backup: a single view of the source, so that it neither waits for writers nor stops them."""
    with closing(sqlite3.connect(part)) as out:
        source.backup(out)
        out.execute("PRAGMA journal_mode = DELETE")  # one file alone, readable in a folder that cannot be written
    with part.open("rb") as file:
        os.fsync(file.fileno())


def _why(error: Exception, target: Path) -> str:
    """SQLite says of a closed folder only that it cannot open the file."""
    if isinstance(error, sqlite3.Error) and not os.access(target.resolve().parent, os.W_OK):
        return "its folder cannot be written"
    return str(error)


def _place(part: Path, target: Path) -> None:
    """Give the finished copy its name. A hard link refuses a name that is taken; not every file system has them."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:
        part.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
