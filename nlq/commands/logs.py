"""`nlq logs`: what a run has printed, and what it prints now."""

import codecs
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nlq.commands._console import console, print_json
from nlq.commands._truth import truth
from nlq.core.errors import NlqError
from nlq.core.run import State
from nlq.store.reader import Reader

POLL_S = 0.1
LOOK_S = 0.5
"""Between two looks at the database while following."""

SETTLE_S = 0.3
"""A worker says how it ended in the database first, and then in its log."""

BLOCK = 1 << 16
EXIT_INTERRUPTED = 130


def logs(db: Path, prefix: str, number: int | None, lines: int | None, *, follow: bool, as_json: bool) -> int:
    """Print a run's log: of its last attempt, or of the attempt `number`, counted from 1; the last `lines` of it."""
    if as_json and follow:
        raise NlqError("--follow prints text as it comes, --json one document", "nlq logs RUN --json, or without it")
    reader = Reader(db)
    run_id = reader.run(prefix).run_id
    if not follow:
        _print(run_id, _attempt(reader, run_id, number), lines, as_json)
        return 0
    try:
        _follow(reader, run_id, number, lines)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def tail(file: BinaryIO, lines: int | None) -> bytes:
    """The last lines of a file (all of it when None); what is before them is not read."""
    position = file.seek(0, os.SEEK_END)
    if lines is None:
        file.seek(0)
        return file.read(position)
    found = b""
    while position > 0 and found.count(b"\n") <= lines:
        size = min(BLOCK, position)
        position -= size
        file.seek(position)
        found = file.read(size) + found
    file.seek(0, os.SEEK_END)
    kept = found.splitlines(keepends=True)
    return b"".join(kept[len(kept) - lines :] if lines < len(kept) else kept)


def _attempt(reader: Reader, run_id: str, number: int | None) -> Mapping[str, Any]:
    attempts = reader.attempts(run_id)
    if not attempts:
        state = reader.run(run_id).state
        raise NlqError(f"{run_id}: no attempt yet, so no log: it is {state}", f"nlq logs {run_id} --follow")
    if attempts[-1]["imported_from"] is not None:
        raise NlqError(f"{run_id}: imported from {attempts[-1]['imported_from']}, so no log", f"nlq show {run_id}")
    if number is None:
        return attempts[-1]
    if not 1 <= number <= len(attempts):
        raise NlqError(f"{run_id}: no attempt {number}", f"--attempt 1 to --attempt {len(attempts)}")
    return attempts[number - 1]


def _print(run_id: str, attempt: Mapping[str, Any], lines: int | None, as_json: bool) -> None:
    path = Path(attempt["log_path"])
    try:
        with path.open("rb") as file:
            text = tail(file, lines).decode("utf-8", errors="replace")
    except OSError as error:
        raise NlqError(f"{path}: the log cannot be read ({error.strerror})", f"nlq show {run_id}") from error
    if as_json:
        print_json({"run_id": run_id, "log_path": str(path), "ended": attempt["ended"], "lines": text.splitlines()})
        return
    _write(text)


def _follow(reader: Reader, run_id: str, number: int | None, lines: int | None) -> None:
    """Attempt after attempt until the run has ended, or until the chosen attempt has."""
    told = False
    done: set[int] = set()
    while True:
        run, remark = truth(reader, reader.run(run_id))
        begun = number is not None or reader.attempts(run_id)
        current = _attempt(reader, run_id, number) if begun else None
        if current and current["attempt"] not in done:
            done.add(current["attempt"])
            _follow_attempt(reader, run_id, current, lines)
            lines = None
            continue
        if number is not None or run.state not in (State.QUEUED, State.RUNNING, State.LOST):
            return
        if not told:
            told = True
            _remark(remark or f"{run_id} is {run.state}; waiting for it, Ctrl-C leaves")
        time.sleep(LOOK_S)


def _follow_attempt(reader: Reader, run_id: str, attempt: Mapping[str, Any], lines: int | None) -> None:
    path, told = Path(attempt["log_path"]), False
    while not path.exists():
        if not _is_open(reader, run_id, attempt["attempt"]):
            return
        time.sleep(POLL_S)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    with path.open("rb") as file:
        _write(decoder.decode(tail(file, lines)))
        looked = time.monotonic()
        while True:
            ended = False
            if time.monotonic() - looked >= LOOK_S:
                looked = time.monotonic()
                ended = not _is_open(reader, run_id, attempt["attempt"])
                time.sleep(SETTLE_S if ended else 0)
                told = told or _tell_if_gone(reader, run_id)
            text = decoder.decode(file.read(), final=ended)
            _write(text)
            if ended:
                return
            if not text:
                time.sleep(POLL_S)


def _is_open(reader: Reader, run_id: str, attempt: int) -> bool:
    return any(one["attempt"] == attempt and one["ended"] is None for one in reader.attempts(run_id))


def _tell_if_gone(reader: Reader, run_id: str) -> bool:
    run, remark = truth(reader, reader.run(run_id))
    if run.state is State.LOST and remark:
        _remark(f"{run_id}: {remark}")
        return True
    return False


def _remark(text: str) -> None:
    console(stderr=True).print(text, style="yellow", markup=False)


def _write(text: str) -> None:
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()
