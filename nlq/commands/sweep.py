"""`nlq sweep`: from a spec file to trained runs."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from nlq import worker
from nlq.commands._console import console, print_json, slots_text
from nlq.commands._detach import Detached, detach, log_of
from nlq.commands.planning import plan_to_run
from nlq.commands.work import Manner, place_of, train
from nlq.core import plugin
from nlq.core.launch import Slot
from nlq.core.run import State
from nlq.core.sweep import replaced
from nlq.models.cost import Cost
from nlq.provenance import code_state, source_sha256
from nlq.runners._process import this_process
from nlq.scheduler import Place
from nlq.stats.printing import plural
from nlq.store.maintenance import ready
from nlq.store.queue import Counts, Queue
from nlq.training.pace import Paces


def sweep(
    spec: Path,
    db: Path,
    cache: Path,
    slots: list[Slot],
    runner: str,
    how: Manner | None = None,
    detached: Sequence[str] | None = None,
) -> int:
    """Queue what the spec asks for and is not trained yet, train it, and return the exit code: 1 if a run failed.

    With `detached`, the options of `nlq work`, a process of its own trains it and this one returns at once.
    """
    start = plugin.load("nlq.runners", runner, "runner").make(worker.main)
    screen, how = console(stderr=True), how or Manner()
    remarks = ready(db, this_process())

    def announce(text: str) -> None:
        screen.print(text, style="dim")

    paces = Paces(cache, slots, source_sha256(), announce)
    planned = plan_to_run(spec, cache, paces, announce)
    queue = Queue(db)
    try:
        counts = {key: _counts(one) for key, one in planned.costs.items()}
        before = queue.sweep_source(planned.sweep.name)
        queue.enqueue(planned.sweep, counts, code_state())
        for remark in [*remarks, *replaced(planned.sweep, before)]:
            screen.print(remark, style="yellow")
        name, runs = planned.sweep.name, plural(len(planned.costs), "run")
        waiting = queue.states(name).get(State.QUEUED, 0)
        screen.print(f"{name}: {runs}, {waiting} to train, on {slots_text(slots)}")
        place = place_of(db, cache)
        if detached is not None:
            return _detach(queue, name, place, detached, screen, as_json=how.as_json)
        return train(queue, name, place, slots, start, how, f"nlq sweep {planned.sweep.source}")
    finally:
        queue.close()


def _detach(queue: Queue, name: str, place: Place, options: Sequence[str], screen: Console, *, as_json: bool) -> int:
    waiting = queue.states(name).get(State.QUEUED, 0)
    begun = Detached(None, None) if not waiting else detach(place.db, name, log_of(place.logs, name), options)
    if as_json:
        log = None if begun.log_path is None else str(begun.log_path)
        print_json({"sweep": name, "queued": waiting, "pid": begun.pid, "log_path": log})
    elif begun.pid is None:
        screen.print("nothing is left to train")
    else:
        print(f"pid {begun.pid}, log {begun.log_path}")
        screen.print(f"look: nlq status --watch --sweep {name}", markup=False)
        screen.print(f"stop, with checkpoints: kill {begun.pid}", markup=False)
    return 0


def _counts(one: Cost) -> Counts:
    return Counts(one.non_embedding_params, one.total_params, one.flops_per_token)
