"""Everything a report, a figure or `nlq status` asks of runs.db. It is opened read-only: reading changes nothing."""

import json
import math
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlq.core.errors import NlqError, nearest
from nlq.core.noise import Noise
from nlq.core.run import EvalPoint, Member, Provenance, RunRecord, State, SweepRecord, WindowLosses
from nlq.store.database import open_read_only
from nlq.store.writer import unpack

if TYPE_CHECKING:
    import pandas as pd

_RUNS = """
SELECT runs.*, specs.spec, a.host, a.device, a.threads, a.nlq_version, a.torch_version, a.python_version,
       a.git_commit, a.git_dirty, a.source_sha256, a.device_uuid, a.log_path, a.heartbeat_at_utc,
       a.imported_from, a.imported_sha256, a.train_tokens,
       (SELECT CASE WHEN COUNT(*) = COUNT(energy_joules) THEN SUM(energy_joules) END FROM attempts AS trained
        WHERE trained.run = runs.run AND resumed_step IS NOT NULL) AS energy_joules
FROM runs JOIN specs USING (spec_key) LEFT JOIN attempts AS a ON a.attempt = runs.attempt
"""


class Reader:
    """Reads one database. Raises NlqError when it is missing, foreign, or of another version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = open_read_only(path)

    def runs(self, states: Iterable[State] | None = None) -> list[RunRecord]:
        """All runs in queue order, or those in the given states."""
        wanted = list(State) if states is None else list(states)
        marks = ", ".join("?" * len(wanted))
        rows = self.db.query(f"{_RUNS} WHERE runs.state IN ({marks}) ORDER BY runs.run", wanted)
        return [_run_record(row) for row in rows]

    def run(self, prefix: str) -> RunRecord:
        """The run whose id starts with `prefix`; NlqError unless there is exactly one."""
        rows = list(self.db.query(f"{_RUNS} WHERE substr(run_id, 1, ?) = ? LIMIT 5", [len(prefix), prefix]))
        if len(rows) == 1:
            return _run_record(rows[0])
        if rows:
            found = ", ".join(row["run_id"] for row in rows)
            raise NlqError(f'"{prefix}" is the start of several runs: {found}', "give more characters")
        known = [row["run_id"] for row in self.db.query("SELECT run_id FROM runs LIMIT 1000")]
        raise NlqError(f'no run "{prefix}" in {self.path}', f"{nearest(prefix, known)}; list them: nlq status")

    def sweep_names(self) -> list[str]:
        """Names of all sweeps, the latest first."""
        return [
            row["name"] for row in self.db.query("SELECT name FROM sweeps ORDER BY updated_at_utc DESC, sweep DESC")
        ]

    def sweep(self, name: str | None = None) -> SweepRecord:
        """A sweep with its runs, or the latest sweep. NlqError when there is none."""
        names = self.sweep_names()
        if not names:
            raise NlqError(f"{self.path}: no sweep yet", "nlq sweep specs/quickstart.yaml")
        if name is not None and name not in names:
            raise NlqError(f'no sweep "{name}" in {self.path}', nearest(name, names))
        return self._sweep(name or names[0])

    def evals(self, run_ids: Iterable[str]) -> dict[str, list[EvalPoint]]:
        """Evaluations by run id, in order of step and split; an empty list where a run has none."""
        points: dict[str, list[EvalPoint]] = {run_id: [] for run_id in run_ids}
        rows = self.db.execute(
            "SELECT run_id, step, split, loss_nats, token_count, evals.data_hash, windows_hash"
            " FROM evals JOIN runs USING (run)"
            " WHERE run_id IN (SELECT value FROM json_each(?)) ORDER BY run, step, split",
            [json.dumps(list(points))],
        )
        for run_id, found in groupby(rows, key=itemgetter(0)):
            points[run_id] = [EvalPoint(row[1], row[2], _number(row[3]), *row[4:]) for row in found]
        return points

    def steps(self, run_ids: Iterable[str]) -> "pd.DataFrame":
        """Every update: columns run_id, step, loss_nats, grad_norm, lr, step_ms."""
        import pandas as pd

        columns = ["run_id", "step", "loss_nats", "grad_norm", "lr", "step_ms"]
        rows = self.db.execute(
            "SELECT run_id, step, loss_nats, grad_norm, lr, step_ms FROM steps JOIN runs USING (run)"
            " WHERE run_id IN (SELECT value FROM json_each(?)) ORDER BY run, step",
            [json.dumps(list(run_ids))],
        ).fetchall()
        frame = pd.DataFrame(rows, columns=columns)
        return frame.astype({"loss_nats": float, "grad_norm": float, "lr": float, "step_ms": float})

    def times(self, run_id: str) -> tuple[list[float], float]:
        """Milliseconds of every step of a run, the quickest first, and of all its evaluations together."""
        sql = "SELECT step_ms FROM steps JOIN runs USING (run) WHERE run_id = ? ORDER BY step_ms"
        evals = "SELECT TOTAL(eval_ms) FROM evals JOIN runs USING (run) WHERE run_id = ?"
        (evals_ms,) = self.db.execute(evals, [run_id]).fetchone()
        return [row[0] for row in self.db.execute(sql, [run_id])], evals_ms

    def windows(self, run_id: str, step: int, split: str) -> WindowLosses | None:
        """Summed losses per window and document of one evaluation, or None where they were not kept."""
        row = self.db.execute(
            "SELECT window_sums, window_tokens, doc_ids, doc_sums, doc_tokens FROM window_losses JOIN runs USING (run)"
            " WHERE run_id = ? AND step = ? AND split = ?",
            [run_id, step, split],
        ).fetchone()
        return None if row is None else unpack(list(row))

    def noises(self) -> list[Noise]:
        """Every σ that `nlq noise` has kept, the latest first."""
        sql = "SELECT noise.*, specs.spec FROM noise JOIN specs USING (spec_key) ORDER BY measured_at_utc DESC"
        decoded = ({**row, **{n: json.loads(row[n]) for n in ("spec", "run_ids")}} for row in self.db.query(sql))
        rows = [{name: row[name] for name in Noise.__dataclass_fields__} for row in decoded]
        return [Noise(**{**row, "run_ids": tuple(row["run_ids"])}) for row in rows]

    def attempts(self, run_id: str) -> list[dict[str, Any]]:
        """The attempts of a run, first to last, as the table has them."""
        sql = "SELECT attempts.* FROM attempts JOIN runs USING (run) WHERE run_id = ? ORDER BY attempts.attempt"
        return list(self.db.query(sql, [run_id]))

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """What happened to a run, first to last: at_utc, kind, message."""
        sql = "SELECT at_utc, kind, message FROM events JOIN runs USING (run) WHERE run_id = ? ORDER BY event"
        return list(self.db.query(sql, [run_id]))

    def _sweep(self, name: str) -> SweepRecord:
        row = next(iter(self.db.query("SELECT * FROM sweeps WHERE name = ?", [name])))
        places = self.db.query(
            f"SELECT members.arm, members.label, members.point, records.* FROM sweep_runs AS members JOIN"
            f" ({_RUNS}) AS records ON records.run = members.run WHERE members.sweep = ? ORDER BY members.position",
            [row["sweep"]],
        )
        members = tuple(Member(p["arm"], p["label"], json.loads(p["point"]), _run_record(p)) for p in places)
        return SweepRecord(name, row["baseline"], row["created_at_utc"], members)


def _number(value: float | None) -> float:
    """A computed number as the tables hold it: NULL is NaN."""
    return math.nan if value is None else value


def _run_record(row: Mapping[str, Any]) -> RunRecord:
    shared = {name: row[name] for name in RunRecord.__dataclass_fields__ if name in row}
    shared.update(state=State(row["state"]), spec=json.loads(row["spec"]), provenance=_provenance(row))
    return RunRecord(**shared)


def _provenance(row: Mapping[str, Any]) -> Provenance | None:
    if row["nlq_version"] is None:
        return None
    dirty = None if row["git_dirty"] is None else bool(row["git_dirty"])
    fields = {name: row[name] for name in Provenance.__dataclass_fields__ if name != "git_dirty"}
    return Provenance(**fields, git_dirty=dirty)
