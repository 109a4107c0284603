"""Further seeds of a sweep's chosen points, queued as members of that sweep."""

from collections.abc import Mapping, Sequence

from nlq.core.run import CodeState
from nlq.core.sweep import PlannedRun
from nlq.store.database import immediate
from nlq.store.members import place
from nlq.store.queue import Counts, Queue

_MEMBERS = """
SELECT sweep_runs.arm, runs.spec_key, sweep_runs.position, sweep_runs.sweep
FROM sweeps JOIN sweep_runs USING (sweep) JOIN runs USING (run) WHERE sweeps.name = ?
"""


def extend(queue: Queue, sweep: str, runs: Sequence[PlannedRun], counts: Mapping[str, Counts], code: CodeState) -> int:
    """Make runs members of a sweep that has some, queued as `Queue.enqueue` does; `counts` is by spec key.

    A run that is a member of its arm already stays one. Returns how many runs were not in the queue before.
    """
    with immediate(queue.db):
        new = sum(queue.enqueue_run(planned, counts[planned.key], code) for planned in runs)
        rows = queue.db.execute(_MEMBERS, [sweep]).fetchall()
        known = {(arm, key) for arm, key, _, _ in rows}
        added = [planned for planned in runs if (planned.arm, planned.key) not in known]
        place(queue.db, rows[0][3], added, 1 + max(position for _, _, position, _ in rows))
    return new
