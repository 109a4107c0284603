"""Which runs a sweep's name stands for, in order."""

import json
from collections.abc import Sequence

from sqlite_utils import Database

from nlq.core.sweep import PlannedRun


def place(db: Database, sweep: int, runs: Sequence[PlannedRun], start: int = 0) -> None:
    """Make queued runs members of a sweep, from position `start` on; inside a transaction."""
    for position, planned in enumerate(runs, start):
        db.execute(
            "INSERT INTO sweep_runs SELECT ?, ?, run, ?, ?, ? FROM runs WHERE spec_key = ?",
            [sweep, position, planned.arm, planned.label, json.dumps(dict(planned.point)), planned.key],
        )
