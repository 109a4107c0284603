"""`nlq work`, and what it shares with `nlq sweep`: a scheduler under its user's control."""

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from nlq import worker
from nlq.commands._console import console, print_json, slots_text
from nlq.commands._devices import gate_of
from nlq.commands._notify import BELL, FORMS, RUN_FAILED, SWEEP_ENDED, Notifier, Way, way_of
from nlq.commands._progress import Progress
from nlq.core import plugin
from nlq.core.errors import NlqError
from nlq.core.launch import Runner, Slot
from nlq.core.run import Member, State
from nlq.runners._process import is_alive, this_process
from nlq.runners._slots import device_count
from nlq.scheduler import STALL_TIMEOUT_S, Place, Scheduler
from nlq.stats.printing import plural
from nlq.store.maintenance import up_to_date
from nlq.store.queue import Queue
from nlq.store.reader import Reader

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Manner:
    """How a scheduler works, and whom it tells. `again` is the command that goes on after an interruption."""

    stall_timeout_s: float = STALL_TIMEOUT_S
    strict: bool = False
    stay: bool = False
    tell: Way | None = None
    as_json: bool = False


def manner(
    stall_timeout: float | None,
    strict: bool,
    notify: str | None,
    *,
    stay: bool = False,
    as_json: bool = False,
    detached: bool = False,
) -> Manner:
    """Options of the command line, looked at before anything is queued. Raises NlqError."""
    seconds = STALL_TIMEOUT_S if stall_timeout is None else stall_timeout
    if not (seconds > 0 and math.isfinite(seconds)):
        raise NlqError(f"--stall-timeout {seconds:g}: seconds without a step, more than 0", "--stall-timeout 1800")
    if detached and notify == BELL:
        raise NlqError("--notify bell: what trains in the background has no terminal to ring", FORMS)
    return Manner(seconds, strict, stay, way_of(notify), as_json)


def work(db: Path, cache: Path, sweep: str | None, slots: list[Slot], runner: str, how: Manner) -> int:
    """Train what is queued in a database, beside other schedulers or alone, and return the exit code."""
    start = plugin.load("nlq.runners", runner, "runner").make(worker.main)
    screen = console(stderr=True)
    for remark in up_to_date(db, this_process()):
        screen.print(remark, style="yellow")
    if sweep is not None:
        Reader(db).sweep(sweep)
    queue = Queue(db)
    try:
        waiting = queue.states(sweep).get(State.QUEUED, 0)
        screen.print(f"{plural(waiting, 'run')} queued in {db}; working on {slots_text(slots)}")
        if beyond := queue.queued_beyond(sweep, device_count(slots)):
            left = f"{plural(beyond, 'run')} of them left alone: train.devices is more than the devices here"
            screen.print(left, style="yellow", markup=False)
        again = f"nlq work --sweep {sweep}" if sweep else "nlq work"
        return train(queue, sweep, place_of(db, cache), slots, start, how, again)
    finally:
        queue.close()


def place_of(db: Path, cache: Path) -> Place:
    """Where runs of a database leave their logs and checkpoints: `.nlq/` beside it."""
    return Place(db, cache, db.resolve().parent / ".nlq")


def train(
    queue: Queue, sweep: str | None, place: Place, slots: list[Slot], runner: Runner, how: Manner, again: str
) -> int:
    """Let a scheduler train a sweep (all of them when None), show it, say how it ended, and return the exit code."""
    screen, reader = console(stderr=True), Reader(place.db)
    with Notifier(how.tell, lambda text: screen.print(text, style="yellow", markup=False)) as notifier:

        def on_failed(member: Member) -> None:
            told = f"{member.run.failure_class}: {member.run.failure_message}"
            notifier.tell(RUN_FAILED, sweep or "", member.run.run_id, told)

        gate = gate_of(slots, queue, sweep, this_process(), lambda text: screen.print(text, markup=False))
        with Progress(reader, sweep, screen, on_failed) as progress:
            scheduler = Scheduler(
                queue, runner, slots, sweep, place, this_process(), is_alive, progress.tick,
                stall_timeout_s=how.stall_timeout_s, strict=how.strict, stay=how.stay, gate=gate,
            )  # fmt: skip
            interrupted = until_interrupted(scheduler)
        states, failed = queue.states(sweep), progress.failed
        if not interrupted:
            notifier.tell(SWEEP_ENDED, sweep or "", "", _states_text(states))
    code = EXIT_INTERRUPTED if interrupted else EXIT_FAILED if failed else 0
    if how.as_json:
        print_json(_summary(sweep, states, failed, code))
    if interrupted:
        screen.print(f"interrupted: what ran is back in the queue; go on with: {again}", markup=False, soft_wrap=True)
    else:
        _tell_end(screen, place.db, states, sweep, failed)
    return code


def until_interrupted(scheduler: Scheduler) -> bool:
    """Let a scheduler run; whether it was interrupted. The first Ctrl-C, SIGTERM or SIGHUP asks, the second ends."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

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


def _tell_end(screen: Console, db: Path, states: dict[State, int], sweep: str | None, failed: Sequence[Member]) -> None:
    screen.print(f"{_states_text(states)} in {db}", markup=False)
    if failed:
        one = f" --sweep {sweep}" if sweep else ""
        again = f"nlq retry --state failed{one}, then nlq work{one}"
        text = f"{plural(len(failed), 'run')} failed: see why with nlq status{one}, and try them again with {again}"
        screen.print(text, style="red", markup=False, soft_wrap=True)


def _summary(sweep: str | None, states: dict[State, int], failed: Sequence[Member], code: int) -> dict[str, object]:
    ids = [member.run.run_id for member in failed]
    return {"sweep": sweep, "states": states, "failed": ids, "interrupted": code == EXIT_INTERRUPTED, "exit_code": code}


def _states_text(states: dict[State, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in states.items())
