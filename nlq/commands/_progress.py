"""What a sweep shows while it trains, and `nlq status --watch`: a live table, and a line for each run that ends."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from nlq.commands._console import duration
from nlq.commands._table import ORDER, Row, live_table, name_of, rows
from nlq.commands._truth import true_members
from nlq.core.run import FINISHED, Member, RunRecord, State, SweepRecord
from nlq.stats.printing import plural
from nlq.store.reader import Reader

REFRESH_S = 0.5
MOST_OF_THE_TIME = 10
"""A look at a large database may take long; at least this many times as long passes until the next."""

ENDED = (*FINISHED, State.FAILED, State.CANCELLED)
LINES_AROUND = 4
"""Lines of the terminal that the table leaves free."""


class Progress:
    """A live display on a terminal; elsewhere one line for each run that ends.

    Shows what trains, or with `everything` every run as far as the terminal reaches. The sweep None is all sweeps.
    """

    def __init__(
        self,
        reader: Reader,
        sweep: str | None,
        screen: Console,
        on_failed: Callable[[Member], None] = lambda _: None,
        *,
        everything: bool = False,
    ) -> None:
        self.reader, self.sweep, self.screen = reader, sweep, screen
        self.on_failed, self.everything = on_failed, everything
        self.live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal else None
        self.began = time.monotonic()
        self.failed: list[Member] = []
        self.over = False
        self._next_look = 0.0
        self._told: set[str] = set()
        self._work_before = 0.0

    def __enter__(self) -> "Progress":
        members = _members(self._records())
        self._told = {m.run.run_id for m in members if m.run.state in ENDED}
        self._work_before = sum(map(_work_done, members))
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.tick(at_once=True)
        finally:
            if self.live:
                self.live.stop()

    def tick(self, *, at_once: bool = False) -> None:
        """Look at the database and show what has changed, at most twice a second. Then `over`: have all runs ended?"""
        began = time.monotonic()
        if not at_once and began < self._next_look:
            return
        records = self._records()
        members = _members(records)
        self._tell_ended(members)
        if self.live:
            self.live.update(Group(*self._lines(records, members)), refresh=True)
        self._next_look = began + max(REFRESH_S, MOST_OF_THE_TIME * (time.monotonic() - began))
        self.over = all(m.run.state in ENDED for m in members)

    def rows(self, most: int) -> list[Row]:
        """The lines of the table as it stands now, at most so many."""
        return [row for record in self._records() for row in self._rows(record, most)][:most]

    def _records(self) -> list[SweepRecord]:
        names = self.reader.sweep_names() if self.sweep is None else [self.sweep]
        return [self._true(self.reader.sweep(name)) for name in names]

    def _true(self, record: SweepRecord) -> SweepRecord:
        return replace(record, members=tuple(true_members(self.reader, record.members)[0]))

    def _tell_ended(self, members: list[Member]) -> None:
        self._told -= {m.run.run_id for m in members if m.run.state not in ENDED}  # tried again
        new = [m for m in members if m.run.state in ENDED and m.run.run_id not in self._told]
        now_failed = {m.run.run_id for m in members if m.run.state is State.FAILED}
        self.failed = [m for m in self.failed if m.run.run_id in now_failed]
        for member in new:
            self._told.add(member.run.run_id)
            has_failed = member.run.state is State.FAILED
            self.screen.print(_ended_line(member), style="red" if has_failed else None)
            if has_failed:
                self.failed.append(member)
                self.on_failed(member)

    def _lines(self, records: list[SweepRecord], members: list[Member]) -> list[RenderableType]:
        most = max(1, self.screen.size.height - LINES_AROUND)
        seen: set[str] = set()
        shown = []
        for record in records:
            fresh = [row for row in self._rows(record, most) if row.member.run.run_id not in seen]
            seen |= {row.member.run.run_id for row in fresh}
            shown += fresh
        states = Counter(m.run.state for m in members)
        counts = ", ".join(f"{number} {state}" for state, number in states.items())
        left = duration(self._time_left(members))
        return [live_table(shown[:most]), Text(f"{plural(len(members), 'run')}: {counts}; time left {left}")]

    def _rows(self, record: SweepRecord, most: int) -> list[Row]:
        wanted = [m for m in record.members if self.everything or m.run.state is State.RUNNING]
        shown = sorted(_unique(wanted), key=lambda m: ORDER.index(m.run.state))[:most]
        return rows(self.reader, record, shown)

    def _time_left(self, members: list[Member]) -> float | None:
        """By what has been done since this display began; until that is known, by the speeds of running runs."""
        left = sum(_work(m.run) - _work_done(m) for m in members if m.run.state not in ENDED)
        done = sum(map(_work_done, members)) - self._work_before
        if done > 0:
            return (time.monotonic() - self.began) * left / done
        speed = sum((m.run.tokens_per_s or 0) * (m.run.flops_per_token or 1) for m in members if _is_running(m))
        return left / speed if speed else None


def _members(records: Iterable[SweepRecord]) -> list[Member]:
    return _unique(member for record in records for member in record.members)


def _unique(members: Iterable[Member]) -> list[Member]:
    """Runs, each once: one may stand in two arms, or in two sweeps."""
    return list({m.run.run_id: m for m in members}.values())


def _is_running(member: Member) -> bool:
    return member.run.state is State.RUNNING


def _work(run: RunRecord) -> float:
    if run.imported:
        return 0.0
    return run.steps_planned * float(run.spec["train"]["batch_tokens"]) * (run.flops_per_token or 1)


def _work_done(member: Member) -> float:
    run = member.run
    return _work(run) * run.steps_done / run.steps_planned


def _ended_line(member: Member) -> Text:
    run = member.run
    told = {
        State.COMPLETED: "completed"
        if run.last_loss_nats is None
        else f"completed, train loss {run.last_loss_nats:.4f}",
        State.DIVERGED: f"diverged at step {run.diverged_step}",
        State.FAILED: f"failed ({run.failure_class}): {run.failure_message}; log {run.log_path}",
    }
    what = told.get(run.state, str(run.state))
    return Text(f"{run.run_id[:8]}  {name_of(member)}: {what}")
