"""`nlq confirm`: fresh seeds of each arm's chosen point, on which alone a verdict may rest."""

from pathlib import Path

from nlq.commands._console import console, print_json
from nlq.core.errors import NlqError
from nlq.core.spec import RunSpec, spec_key
from nlq.core.sweep import PlannedRun
from nlq.provenance import code_state
from nlq.runners._process import this_process
from nlq.stats.printing import plural
from nlq.stats.selection import GridPoint, Selection, load
from nlq.stats.tuning import further_seeds
from nlq.store.confirming import extend
from nlq.store.maintenance import up_to_date
from nlq.store.queue import Counts, Queue
from nlq.store.reader import Reader


def confirm(db: Path, sweep: str | None, count: int, *, as_json: bool) -> None:
    """Queue `count` fresh seeds of each arm's chosen point. Raises NlqError where nothing has been chosen yet."""
    up_to_date(db, this_process())
    selection = load(Reader(db), sweep)
    seeds = further_seeds(selection, count)
    runs = _planned(selection, seeds)
    counts = {planned.key: counted for planned, counted in runs}
    queue = Queue(db)
    try:
        new = extend(queue, selection.sweep.name, [planned for planned, _ in runs], counts, code_state())
    finally:
        queue.close()
    name = selection.sweep.name
    if as_json:
        print_json({"sweep": name, "seeds": seeds, "runs": len(runs), "new": new})
        return
    listed = ", ".join(map(str, seeds))
    chosen = f"seeds {listed} of each arm's chosen point: {plural(len(runs), 'run')}, {new} new"
    console().print(f"{name}: {chosen}; train them: nlq work --sweep {name}")


def _planned(selection: Selection, seeds: tuple[int, ...]) -> list[tuple[PlannedRun, Counts]]:
    return [_one(point, seed) for point in selection.best.values() for seed in seeds]


def _one(point: GridPoint, seed: int) -> tuple[PlannedRun, Counts]:
    """The point's spec as it was resolved, under another seed; its model has the same size."""
    run = point.traces[0].member.run
    if point.imported or not (run.non_embedding_params and run.total_params and run.flops_per_token):
        raise NlqError(f"{point.label}: made elsewhere, so nlq cannot train it again", "nlq sweep a spec of your own")
    spec = RunSpec.model_validate(dict(run.spec)).model_copy(update={"seed": seed})
    planned = PlannedRun(point.arm, point.label, point.settings, spec, spec_key(spec))
    return planned, Counts(run.non_embedding_params, run.total_params, run.flops_per_token)
