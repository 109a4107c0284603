"""`nlq sweep --detach`: `nlq work` in a session of its own, which neither a closed terminal nor Ctrl-C reaches."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from nlq.core.errors import NlqError
from nlq.store.backup import free_name


class Detached(NamedTuple):
    """A scheduler in the background and where it writes; None where nothing had to be started."""

    pid: int | None
    log_path: Path | None


def log_of(folder: Path, sweep: str) -> Path:
    """A log that no other scheduler has, named by the sweep and the time in UTC."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return free_name(folder / f"work-{re.sub(r'[^A-Za-z0-9._-]', '_', sweep)[:60]}-{stamp}.log")


def words(options: Mapping[str, Any]) -> list[str]:
    """Options as they are typed: what is None or False is left out."""
    typed: list[str] = []
    for name, value in options.items():
        if value is not None and value is not False:
            typed.append(f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}"))
    return typed


def detach(db: Path, sweep: str, log: Path, options: Sequence[str]) -> Detached:
    """Start `nlq work` for a sweep. Raises NlqError where it cannot be started; the runs stay queued."""
    command = [sys.executable, "-m", "nlq", "work", *words({"db": db.resolve(), "sweep": sweep}), *options]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        hint = f"the runs are queued; train them here: nlq work --sweep {sweep}"
        raise NlqError(f"{log}: no scheduler could be started in the background ({error})", hint) from error
    return Detached(child.pid, log)
