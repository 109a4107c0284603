"""Claims queued runs, gives each a slot, starts it, watches it, and records how it ended."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nlq.core.launch import Handle, Launch, Process, Runner, Slot
from nlq.core.run import State
from nlq.store.queue import Claim, Queue

POLL_S = 0.1
GRACE_S = 5.0


@dataclass(frozen=True)
class Place:
    """Where a scheduler works: the database, the prepared corpora, and the folder of the runs' logs."""

    db: Path
    cache: Path
    logs: Path


@dataclass
class Scheduler:
    """Trains the queued runs of one sweep on this machine. Several schedulers may share a database.

    `process` is the scheduler's own; `is_alive` tells whether a process still runs; `on_tick` is called at every look.
    """

    queue: Queue
    runner: Runner
    slots: list[Slot]
    sweep: str
    place: Place
    process: Process
    is_alive: Callable[[Process], bool]
    on_tick: Callable[[], None]
    running: dict[int, tuple[Slot, Handle]] = field(default_factory=dict)

    def run(self) -> None:
        """Return when no run of the sweep is queued or running, here or under another scheduler.

        A KeyboardInterrupt stops the runs started here, gives them back to the queue, and is raised again.
        """
        try:
            while self._look():
                self.on_tick()
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            self._give_back()
            raise

    def _look(self) -> bool:
        self._recover()
        self._reap()
        self._fill()
        counts = self.queue.states(self.sweep)
        return bool(self.running or counts.get(State.QUEUED) or counts.get(State.RUNNING))

    def _recover(self) -> None:
        """Attempts of schedulers that are gone, and whose own process is gone too, give their runs back."""
        for lost in self.queue.open_attempts():
            owner_gone = lost.scheduler.host == self.process.host and not self.is_alive(lost.scheduler)
            if owner_gone and not (lost.worker and self.is_alive(lost.worker)):
                self.queue.lose(lost.attempt, "its scheduler and its process are gone")

    def _reap(self) -> None:
        for attempt, (_, handle) in list(self.running.items()):
            code = handle.poll()
            if code is not None:
                del self.running[attempt]
                self.queue.lose(attempt, ending(code), exit_code=code)

    def _fill(self) -> None:
        busy = {slot.name for slot, _ in self.running.values()}
        for slot in self.slots:
            if slot.name in busy:
                continue
            claim = self.queue.claim(self.sweep, self.process, slot.name, self.place.logs)
            if claim is None:
                return
            self._start(claim, slot)

    def _start(self, claim: Claim, slot: Slot) -> None:
        try:
            handle = self.runner.start(Launch(self._arguments(claim, slot), claim.log_path, slot))
        except OSError as error:
            self.queue.finish(claim.attempt, State.FAILED, failure_class="code_error", message=f"not started: {error}")
            return
        self.queue.launched(claim.attempt, handle.process)
        self.running[claim.attempt] = (slot, handle)

    def _arguments(self, claim: Claim, slot: Slot) -> tuple[str, ...]:
        place = self.place
        where = ("--db", str(place.db), "--cache", str(place.cache), "--token", claim.token)
        return (*where, "--device", slot.device, "--threads", str(slot.threads))

    def _give_back(self) -> None:
        for attempt, (_, handle) in self.running.items():
            handle.stop(GRACE_S)
            self.queue.give_back(attempt, "interrupted")


def ending(code: int) -> str:
    """How a process that did not say so itself came to its end."""
    if code < 0:
        return f"killed by signal {-code} ({signal.strsignal(-code)})"
    return f"ended with code {code} before its last step"
