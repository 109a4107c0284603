"""What a sweep shows while it trains: one line a running run, and what has ended."""

import time
from collections import Counter

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nlq.commands._console import dash, duration
from nlq.core.run import FINISHED, Member, RunRecord, State
from nlq.stats.origin import plural
from nlq.stats.printing import settings
from nlq.store.reader import Reader

REFRESH_S = 0.5
BAR_WIDTH = 12
ENDED = (*FINISHED, State.FAILED, State.CANCELLED)


class Progress:
    """A live display on a terminal; elsewhere one line for each run that ends."""

    def __init__(self, reader: Reader, sweep: str, screen: Console) -> None:
        self.reader, self.sweep, self.screen = reader, sweep, screen
        self.live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal else None
        self.began = time.monotonic()
        self._looked = 0.0
        self._told: set[str] = set()
        self._work_before = 0.0

    def __enter__(self) -> "Progress":
        members = self._members()
        self._told = {m.run.run_id for m in members if m.run.state in ENDED}
        self._work_before = sum(map(_work_done, members))
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.tick(at_once=True)
        if self.live:
            self.live.stop()

    def tick(self, *, at_once: bool = False) -> None:
        """Look at the database and show what has changed, at most twice a second."""
        if not at_once and time.monotonic() - self._looked < REFRESH_S:
            return
        self._looked = time.monotonic()
        members = self._members()
        self._tell_ended(members)
        if self.live:
            self.live.update(Group(*self._lines(members)), refresh=True)

    def _members(self) -> list[Member]:
        """The sweep's runs; one that stands in two arms counts once."""
        return list({m.run.run_id: m for m in self.reader.sweep(self.sweep).members}.values())

    def _tell_ended(self, members: list[Member]) -> None:
        for member in members:
            if member.run.state in ENDED and member.run.run_id not in self._told:
                self._told.add(member.run.run_id)
                self.screen.print(_ended_line(member), style="red" if member.run.state is State.FAILED else None)

    def _lines(self, members: list[Member]) -> list[RenderableType]:
        running = _running_table([m for m in members if m.run.state is State.RUNNING])
        states = Counter(m.run.state for m in members)
        counts = ", ".join(f"{number} {state}" for state, number in states.items())
        return [
            running,
            Text(f"{plural(len(members), 'run')}: {counts}; time left {duration(self._time_left(members))}"),
        ]

    def _time_left(self, members: list[Member]) -> float | None:
        done = sum(map(_work_done, members)) - self._work_before
        left = sum(_work(m.run) - _work_done(m) for m in members if m.run.state not in ENDED)
        return (time.monotonic() - self.began) * left / done if done > 0 else None


def _work(run: RunRecord) -> float:
    return run.steps_planned * float(run.spec["train"]["batch_tokens"]) * (run.flops_per_token or 1)


def _work_done(member: Member) -> float:
    run = member.run
    return _work(run) * run.steps_done / run.steps_planned


def _running_table(members: list[Member]) -> Table:
    """One line a running run; the name gives way where the terminal is narrow."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for _ in range(5):
        table.add_column(no_wrap=True, justify="right")
    for member in members:
        table.add_row(*_running_cells(member))
    return table


def _running_cells(member: Member) -> list[Text]:
    run = member.run
    left = None
    if run.tokens_per_s:
        left = (run.steps_planned - run.steps_done) * run.spec["train"]["batch_tokens"] / run.tokens_per_s
    filled = round(BAR_WIDTH * run.steps_done / run.steps_planned)
    cells = [
        _name(member),
        "█" * filled + "░" * (BAR_WIDTH - filled),
        f"step {run.steps_done}/{run.steps_planned}",
        f"loss {dash(run.last_loss_nats, '.4f')}",
        f"{dash(run.tokens_per_s, ',.0f')} tok/s",
        f"{duration(left)} left",
    ]
    return [Text(cell) for cell in cells]


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
    return Text(f"{run.run_id[:8]}  {_name(member)}: {what}")


def _name(member: Member) -> str:
    """A run as people call it: its arm, point and seed."""
    return "  ".join(filter(None, (member.label, settings(member.point), f"seed {member.run.seed}")))
