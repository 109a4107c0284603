"""σ of one run, kept in runs.db when it has been measured."""

import json
from pathlib import Path

from nlq.core.errors import NlqError
from nlq.core.noise import Noise
from nlq.store.database import immediate, open_writable

_KEEP = """
INSERT OR REPLACE INTO noise (spec_key, sweep, arm, label, step, split, mean_nats, sigma_nats, low_nats, high_nats,
    run_ids, measured_at_utc)
VALUES ((SELECT spec_key FROM runs WHERE run_id = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def keep(path: Path, found: Noise) -> None:
    """Write σ down, in the place of what was measured before of the same arm, step and split of the sweep.

    Raises NlqError where the database cannot be written, or σ rests on no runs.
    """
    if not found.run_ids:
        raise NlqError("σ rests on no runs: it cannot be kept")
    db = open_writable(path)
    with immediate(db):
        numbers = [found.mean_nats, found.sigma_nats, found.low_nats, found.high_nats]
        place = [found.run_ids[0], found.sweep, found.arm, found.label, found.step, found.split]
        db.execute(_KEEP, [*place, *numbers, json.dumps(found.run_ids), found.measured_at_utc])
    db.close()
