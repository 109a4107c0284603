"""Claims queued runs, gives each a slot, starts it, watches it, and records how it ended."""

import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nlq.core.errors import NlqError
from nlq.core.launch import TOGETHER, Gate, Handle, Launch, Process, Runner, Slot, join_slots, slot_names
from nlq.core.run import State
from nlq.runners._gpus import gpu_of
from nlq.runners._packing import Unguarded
from nlq.runners._slots import device_count
from nlq.store.queue import Claim, OpenAttempt, Queue

POLL_S = 0.02
RECOVER_S = 1.0
COUNT_S = 0.5
GRACE_S = 10.0
STALL_TIMEOUT_S = 1800.0
EXIT_NO_SPACE = 28
"""A worker's exit code when the disk is so full that it could not tell the database."""


@dataclass(frozen=True)
class Place:
    """Where a scheduler works: the database, the prepared corpora, and the folder of logs and checkpoints."""

    db: Path
    cache: Path
    folder: Path

    @property
    def logs(self) -> Path:
        """One log an attempt."""
        return self.folder / "logs"

    @property
    def checkpoints(self) -> Path:
        """One folder a run."""
        return self.folder / "checkpoints"


@dataclass
class Watched:
    """A running attempt; its heartbeat last changed at `moved_at` by this process's own clock."""

    slot: Slot
    handle: Handle
    heartbeat: str | None = None
    moved_at: float = field(default_factory=time.monotonic)


@dataclass
class Scheduler:
    """Trains the queued runs of one sweep, or of all, on this machine. Several schedulers may share a database.

    `is_alive` tells whether a process still runs; `on_tick` is called at every look.
    """

    queue: Queue
    runner: Runner
    slots: list[Slot]
    sweep: str | None
    place: Place
    process: Process
    is_alive: Callable[[Process], bool]
    on_tick: Callable[[], None]
    stall_timeout_s: float = STALL_TIMEOUT_S
    strict: bool = False
    stay: bool = False
    gate: Gate = field(default_factory=Unguarded)
    interrupts: int = 0
    running: dict[int, Watched] = field(default_factory=dict)
    _recovered_at: float = -RECOVER_S
    _counts: dict[State, int] = field(default_factory=dict)
    _counted_at: float = -RECOVER_S
    _claim_again_at: float = 0.0

    def run(self) -> None:
        """Return when no run is queued or running, here or under another scheduler; with `stay`, wait for more."""
        while self._look_patiently():
            self.on_tick()
            time.sleep(POLL_S)

    def _look_patiently(self) -> bool:
        """A database that is locked or full for a while ends no scheduler: it records later what it could not."""
        try:
            return self._look()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) and "full" not in str(error):
                raise
            time.sleep(RECOVER_S)
            return True

    def interrupt(self) -> None:
        """First: start nothing more; running runs write a checkpoint and go back to the queue. Then: end them at once.

        Called from a signal handler, so it only counts.
        """
        self.interrupts += 1

    def _look(self) -> bool:
        if self.interrupts:
            self._stop_running()
        elif time.monotonic() - self._recovered_at >= RECOVER_S:
            self._recover()
        self._reap()
        if self.interrupts:
            return bool(self.running)
        self._fill()
        counts = self._states()
        return self.stay or bool(self.running or counts.get(State.QUEUED) or counts.get(State.RUNNING))

    def _states(self) -> dict[State, int]:
        """Runs by state, asked again when something ended or started here, and otherwise about twice a second.

        Queued runs that need more devices than there are here do not count: another scheduler may train them.
        """
        if time.monotonic() - self._counted_at >= COUNT_S:
            self._counts, self._counted_at = self.queue.states(self.sweep), time.monotonic()
            if self._counts.get(State.QUEUED):
                self._counts[State.QUEUED] -= self.queue.queued_beyond(self.sweep, device_count(self.slots))
        return self._counts

    def _changed(self) -> None:
        self._counted_at, self._claim_again_at = -COUNT_S, 0.0

    def _recover(self) -> None:
        """Take over what schedulers that are gone left running, give back what is gone, and look for stalled loops."""
        self._recovered_at = time.monotonic()
        if not self.place.db.exists():
            raise NlqError(
                f"{self.place.db}: deleted while runs were in it", "what ran is lost; start again: nlq sweep SPEC"
            )
        for found in self.queue.open_attempts():
            if found.attempt in self.running:
                self._look_at_heartbeat(found)
            elif found.scheduler.host == self.process.host and not self.is_alive(found.scheduler):
                self._take_over(found)

    def _take_over(self, orphan: OpenAttempt) -> None:
        if orphan.worker is None or not self.is_alive(orphan.worker):
            if orphan.worker is not None:
                self.runner.adopt(orphan.worker).poll()  # ends what it left running in its group
            self.queue.lose(orphan.attempt, "its scheduler and its process are gone")
        elif self.queue.adopt(orphan, self.process):
            slot = next((s for s in self.slots if s.name == orphan.slot), Slot(orphan.slot, "cpu", 1))
            self.running[orphan.attempt] = Watched(slot, self.runner.adopt(orphan.worker), orphan.heartbeat_at_utc)

    def _look_at_heartbeat(self, found: OpenAttempt) -> None:
        """By this process's own monotonic clock: a clock that is set back stalls nothing and hides nothing."""
        watched = self.running[found.attempt]
        if found.heartbeat_at_utc != watched.heartbeat:
            watched.heartbeat, watched.moved_at = found.heartbeat_at_utc, time.monotonic()
        elif time.monotonic() - watched.moved_at > self.stall_timeout_s:
            why = f"no step for {self.stall_timeout_s:g} s"
            self.queue.note(found.attempt, "stalled", why)
            watched.handle.stop(GRACE_S)
            self.queue.lose(found.attempt, why)

    def _reap(self) -> None:
        for attempt, watched in list(self.running.items()):
            code = watched.handle.poll()
            if code is None:
                continue
            self._changed()
            if code == EXIT_NO_SPACE:
                message = "no space left for the log, a checkpoint or the database"
                self.queue.finish(attempt, State.FAILED, exit_code=code, failure_class="no_space", message=message)
            else:
                self.queue.lose(attempt, ending(code), exit_code=code)
            del self.running[attempt]  # only now: an end that could not be recorded is looked at again

    def _fill(self) -> None:
        for attempt, why in self.gate.misplaced(self.running):
            self.queue.finish(attempt, State.FAILED, failure_class="device_error", message=why)
            self.running[attempt].handle.stop(0)  # there is nothing to wait for: its rows are refused already
        waits = self._states().get(State.QUEUED) and time.monotonic() >= self._claim_again_at
        free: list[Slot] = []
        for slot in self.gate.free(self.slots if waits and self.runner.warm() else (), self._busy()):
            if gpu_of(slot.name) is None or gpu_of(slot.name) not in map(gpu_of, (one.name for one in free)):
                free = self._fill_with([*free, slot])

    def _busy(self) -> dict[str, int]:
        """Slots that train here, each with the number of its process."""
        watched = self.running.values()
        return {name: one.handle.process.pid for one in watched for name in slot_names(one.slot.name)}

    def _fill_with(self, free: list[Slot]) -> list[Slot]:
        """Start a run in free slots; those that are left. The next run in line is not passed by: it waits for slots."""
        names = TOGETHER.join(slot.name for slot in free)
        claim = self.queue.claim(self.sweep, self.process, names, self.place.logs, device_count(self.slots))
        if claim is None:  # it needs more, or another scheduler was quicker, or its run is in that slot
            self._claim_again_at = time.monotonic() + COUNT_S
            return free
        self._changed()
        taken = slot_names(claim.slot)
        self._start(claim, join_slots([slot for slot in free if slot.name in taken]))
        return [slot for slot in free if slot.name not in taken]

    def _start(self, claim: Claim, slot: Slot) -> None:
        try:
            handle = self.runner.start(Launch(self._arguments(claim, slot), claim.log_path, slot))
        except OSError as error:
            self.queue.finish(claim.attempt, State.FAILED, failure_class="code_error", message=f"not started: {error}")
            return
        self.running[claim.attempt] = Watched(slot, handle)
        self.queue.launched(claim.attempt, handle.process)

    def _arguments(self, claim: Claim, slot: Slot) -> tuple[str, ...]:
        place = self.place
        where = ("--db", str(place.db), "--cache", str(place.cache), "--checkpoints", str(place.checkpoints))
        how = ("--device", slot.device, "--threads", str(slot.threads), *(["--strict"] if self.strict else []))
        return (*where, "--token", claim.token, *how)

    def _stop_running(self) -> None:
        for attempt, watched in self.running.items():
            if self.interrupts > 1:
                watched.handle.stop(GRACE_S)
                self.queue.give_back(attempt, "interrupted twice")
            else:
                watched.handle.ask_to_stop()


def ending(code: int) -> str:
    """How a process that did not say so itself came to its end."""
    if code < 0:
        return f"killed by signal {-code} ({signal.strsignal(-code)})"
    return f"its process ended with code {code} before its last step"
