"""`nlq sweep`: from a spec file to trained runs."""

import signal
from pathlib import Path
from types import FrameType

from nlq import worker
from nlq.commands._console import console, slots_text
from nlq.commands._progress import Progress
from nlq.commands.planning import Planned, plan_to_run
from nlq.core import plugin
from nlq.core.launch import Runner, Slot
from nlq.core.run import State
from nlq.models.cost import Cost
from nlq.provenance import code_state
from nlq.runners._process import is_alive, this_process
from nlq.scheduler import Place, Scheduler
from nlq.stats.origin import plural
from nlq.store.queue import Counts, Queue
from nlq.store.reader import Reader

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def sweep(spec: Path, db: Path, cache: Path, slots: list[Slot], runner: str, *, strict: bool = False) -> int:
    """Queue what the spec asks for and is not trained yet, train it, and return the exit code: 1 if a run failed."""
    start = plugin.load("nlq.runners", runner).make(worker.main)
    screen = console(stderr=True)
    planned = plan_to_run(spec, cache, lambda text: screen.print(text, style="dim"))
    queue = Queue(db)
    try:
        counts = {key: _counts(one) for key, one in planned.costs.items()}
        new = queue.enqueue(planned.sweep, counts, code_state())
        runs = plural(len(planned.costs), "run")
        screen.print(f"{planned.sweep.name}: {runs}, {new} to train, on {slots_text(slots)}")
        return _train(planned, queue, place_of(db, cache), slots, start, strict)
    finally:
        queue.close()


def place_of(db: Path, cache: Path) -> Place:
    """Where runs of a database leave their logs and checkpoints: `.nlq/` beside it."""
    return Place(db, cache, db.resolve().parent / ".nlq")


def work(scheduler: Scheduler) -> bool:
    """Let a scheduler run; whether it was interrupted. The first Ctrl-C (or SIGTERM) asks, the second ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def take(_number: int, _frame: FrameType | None) -> None:
        scheduler.interrupt()

    for number in before:
        signal.signal(number, take)
    try:
        scheduler.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return scheduler.interrupts > 0


def _train(planned: Planned, queue: Queue, place: Place, slots: list[Slot], runner: Runner, strict: bool) -> int:
    screen = console(stderr=True)
    name = planned.sweep.name
    with Progress(Reader(place.db), name, screen) as progress:
        scheduler = Scheduler(queue, runner, slots, name, place, this_process(), is_alive, progress.tick, strict=strict)
        interrupted = work(scheduler)
    if interrupted:
        screen.print(f"interrupted: what ran is back in the queue; go on with: nlq sweep {planned.sweep.source}")
        return EXIT_INTERRUPTED
    return _summary(planned, queue.states(name), place.db)


def _summary(planned: Planned, states: dict[State, int], db: Path) -> int:
    screen = console(stderr=True)
    screen.print(", ".join(f"{number} {state}" for state, number in states.items()) + f" in {db}")
    failed = states.get(State.FAILED, 0)
    if failed:
        again = f"nlq sweep {planned.sweep.source}"
        screen.print(
            f"{plural(failed, 'run')} failed: see why with nlq status, and try them again with {again}", style="red"
        )
    return EXIT_FAILED if failed else 0


def _counts(one: Cost) -> Counts:
    return Counts(one.non_embedding_params, one.total_params, one.flops_per_token)
