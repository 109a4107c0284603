"""The live table of `nlq sweep`, `nlq work` and `nlq status --watch`: one line a run."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from nlq.commands._console import dash, duration
from nlq.core.run import EvalPoint, Member, RunRecord, State, SweepRecord
from nlq.stats.printing import settings
from nlq.store.reader import Reader

BAR_WIDTH = 8
DEVICE_WIDTH = 14
COLUMNS = ("run", "", "step", "loss", "Δ base", "tok/s", "device", "left")
SPLITS = ("select", "val")
"""Where arms are compared while they train; `confirm` is kept for the table."""

ORDER = (State.RUNNING, State.LOST, State.FAILED, State.DIVERGED, State.QUEUED, State.CANCELLED, State.COMPLETED)
"""What moves or needs someone comes first."""

STYLES = {
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.DIVERGED: "yellow",
    State.FAILED: "red",
    State.LOST: "magenta",
    State.CANCELLED: "dim",
}


class Row(NamedTuple):
    """A run, and its loss above the baseline's (nats) at the same step, seed and point, where both are known."""

    member: Member
    difference_nats: float | None


def rows(reader: Reader, record: SweepRecord, shown: Sequence[Member]) -> list[Row]:
    """The members that are shown, each beside the baseline."""
    apart = differences(reader, record, shown)
    return [Row(member, apart.get(member.run.run_id)) for member in shown]


def differences(reader: Reader, record: SweepRecord, shown: Sequence[Member]) -> dict[str, float]:
    """By run id: loss minus the baseline's, at the last step at which both were evaluated."""
    baselines = {_place(m): m.run.run_id for m in record.members if m.arm == record.baseline}
    pairs = {m.run.run_id: baselines[_place(m)] for m in shown if m.arm != record.baseline and _place(m) in baselines}
    if not pairs:
        return {}
    evals = reader.evals({*pairs, *pairs.values()})
    found = {one: _difference(evals[one], evals[other]) for one, other in pairs.items()}
    return {run_id: value for run_id, value in found.items() if value is not None}


def live_table(shown: Sequence[Row]) -> Table:
    """Names give way where the terminal is narrow, numbers do not."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=True, header_style="dim")
    for name in COLUMNS:
        if name == "run":
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1, min_width=8)
        else:
            table.add_column(name, no_wrap=True, justify="left" if name in ("", "device") else "right")
    for row in shown:
        table.add_row(*map(Text, _cells(row)), style=STYLES.get(row.member.run.state))
    return table


def name_of(member: Member) -> str:
    """A run as people call it: its arm, point and seed."""
    return "  ".join(filter(None, (member.label, settings(member.point), f"seed {member.run.seed}")))


def seconds_left(run: RunRecord) -> float | None:
    """At the speed of its last second, evaluations apart."""
    if not run.tokens_per_s:
        return None
    return (run.steps_planned - run.steps_done) * float(run.spec["train"]["batch_tokens"]) / run.tokens_per_s


def state_text(run: RunRecord) -> str:
    """A run's state in a word or two."""
    return f"diverged at {run.diverged_step}" if run.state is State.DIVERGED else str(run.state)


def _cells(row: Row) -> list[str]:
    run = row.member.run
    filled = round(BAR_WIDTH * run.steps_done / run.steps_planned)
    running = run.state is State.RUNNING
    device = run.provenance.device if run.provenance and run.state is not State.QUEUED else None
    return [
        name_of(row.member),
        "█" * filled + "░" * (BAR_WIDTH - filled),
        f"{run.steps_done}/{run.steps_planned}",
        dash(run.last_loss_nats, ".4f"),
        _signed(row.difference_nats),
        dash(run.tokens_per_s if running else None, ",.0f"),
        dash(device and _short(device)),
        duration(seconds_left(run)) if running else state_text(run),
    ]


def _short(device: str) -> str:
    return device if len(device) <= DEVICE_WIDTH else device[: DEVICE_WIDTH - 1] + "…"


def _signed(nats: float | None) -> str:
    return dash(nats, "+.4f").replace("-", "−") if nats is None or math.isfinite(nats) else dash(None)


def _place(member: Member) -> tuple[int, str]:
    return member.run.seed, repr(sorted(member.point.items()))


def _difference(points: Sequence[EvalPoint], others: Sequence[EvalPoint]) -> float | None:
    own, base = _by_step(points), _by_step(others)
    common = own.keys() & base.keys()
    if not common:
        return None
    last = max(common)
    return own[last] - base[last]


def _by_step(points: Sequence[EvalPoint]) -> Mapping[int, float]:
    return {point.step: point.loss_nats for point in points if point.split in SPLITS}
