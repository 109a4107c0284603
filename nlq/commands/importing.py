"""`nlq import`: runs made elsewhere, into the database."""

from pathlib import Path
from typing import Any

from rich.table import Table

from nlq.commands._console import console, dash, print_json
from nlq.core.document import read
from nlq.core.imported import VAL
from nlq.core.run import State
from nlq.core.spec import RunSpec
from nlq.core.sweep import PlannedRun, replaced
from nlq.importing.plan import Counts, Plan, plan
from nlq.runners._process import this_process
from nlq.stats.printing import count, plural, settings
from nlq.store.imports import take
from nlq.store.maintenance import ready
from nlq.store.queue import RUN_ID_LENGTH, Queue


def import_runs(spec: Path, db: Path, *, dry_run: bool, as_json: bool) -> None:
    """Write the runs that a YAML describes, or list them with `dry_run`. Nothing is written where a file is wrong."""
    remarks = [] if dry_run else ready(db, this_process())
    found = plan(read(spec), _Counter())
    new = None
    if not dry_run:
        new, told = _take(db, found)
        remarks += told
    rows = [_row(found, run, new) for run in found.sweep.runs]
    if as_json:
        print_json({"sweep": found.sweep.name, "runs": rows, "remarks": remarks})
        return
    _print(found, rows)
    screen = console(stderr=True)
    for remark in remarks:
        screen.print(remark, style="yellow")
    screen.print("nothing written (--dry-run)" if new is None else _written(len(new), len(found.found)))


def _written(new: int, of: int) -> str:
    known = "" if new == of else f"; {of - new} known already, and left as they are"
    return f"{plural(new, 'run')} written{known}"


def _take(db: Path, found: Plan) -> tuple[set[str], list[str]]:
    queue = Queue(db)
    try:
        before = queue.sweep_source(found.sweep.name)
        return set(take(queue, found.sweep, found.found)), replaced(found.sweep, before)
    finally:
        queue.close()


class _Counter:
    """Counts a model once, however many runs have it."""

    def __init__(self) -> None:
        self.known: dict[str, Counts] = {}

    def __call__(self, spec: RunSpec) -> Counts:
        key = spec.model.model_dump_json()
        if key not in self.known:
            self.known[key] = _counted(spec)
        return self.known[key]


def _counted(spec: RunSpec) -> Counts:
    from nlq.core.spec import defaults_resolved
    from nlq.models.build import resolve
    from nlq.models.cost import cost

    one = cost(resolve(defaults_resolved(spec)).model)
    return Counts(one.non_embedding_params, one.total_params, one.flops_per_token)


def _row(found: Plan, run: PlannedRun, new: set[str] | None) -> dict[str, Any]:
    one = found.found[run.key]
    last = one.last(VAL) or (None, None)
    return {
        "run_id": run.key[:RUN_ID_LENGTH],
        "arm": run.arm,
        "label": run.label,
        "point": dict(run.point),
        "seed": run.spec.seed,
        "state": State.COMPLETED if one.diverged_step is None else State.DIVERGED,
        "steps_planned": one.steps_planned,
        "diverged_step": one.diverged_step,
        "last_step": last[0],
        "last_val_loss_nats": last[1],
        "non_embedding_params": one.non_embedding_params,
        "total_params": one.total_params,
        "source": one.source,
        "sha256": one.sha256,
        "is_new": None if new is None else run.key in new,
    }


def _print(found: Plan, rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"{found.sweep.name}: {plural(len(rows), 'run')} made elsewhere", title_justify="left")
    for name in ("run", "arm", "point"):
        table.add_column(name, overflow="fold", no_wrap=name == "run")
    for name in ("seed", "state", "step", "val loss", "N.E. params"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("source", overflow="fold")
    for row in rows:
        numbers = (dash(row["last_step"], ",d"), dash(row["last_val_loss_nats"], ".4f"))
        params = row["non_embedding_params"]
        place = (row["run_id"], row["label"], settings(row["point"]), str(row["seed"]), str(row["state"]))
        table.add_row(*place, *numbers, dash(params and count(params)), Path(row["source"]).name)
    console().print(table)
