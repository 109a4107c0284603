"""What is really so: a run that the database calls running may have lost its process. Nothing is written."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nlq.core.launch import Process
from nlq.core.run import Member, RunRecord, State
from nlq.runners._process import is_alive, this_process
from nlq.store.reader import Reader

PROCESS_GONE = "its process is gone; nlq work goes on with it"
SCHEDULER_GONE = "it trains, but its scheduler is gone; nlq work takes it over"


class Seen(NamedTuple):
    """A run in its true state, and a remark where that needs one."""

    run: RunRecord
    remark: str | None = None


def truth(reader: Reader, run: RunRecord) -> Seen:
    """A run as it is: LOST where it should be running on this machine and its process is gone."""
    if run.state is not State.RUNNING:
        return Seen(run)
    attempts = reader.attempts(run.run_id)
    if not attempts or attempts[-1]["ended"] is not None:
        return Seen(reader.run(run.run_id))  # it has moved on since it was read
    return _seen(run, attempts[-1])


def true_members(reader: Reader, members: Iterable[Member]) -> tuple[list[Member], dict[str, str]]:
    """Members in their true states, and remarks by run id."""
    found = list(members)
    seen = {m.run.run_id: truth(reader, m.run) for m in found}
    remarks = {run_id: one.remark for run_id, one in seen.items() if one.remark}
    return [replace(m, run=seen[m.run.run_id].run) for m in found], remarks


def is_here(attempt: Mapping[str, Any]) -> bool:
    """Whether an attempt, as its table has it, was begun on this machine: other machines' processes cannot be seen."""
    return bool(attempt["host"] == this_process().host)


def _seen(run: RunRecord, attempt: Mapping[str, Any]) -> Seen:
    if not is_here(attempt):
        heard = attempt["heartbeat_at_utc"] or attempt["claimed_at_utc"]
        return Seen(run, f"on {attempt['host']}; last heard of at {heard}")
    scheduled = is_alive(_process(attempt, "scheduler_"))
    is_about_to_start = attempt["pid"] is None
    alive = scheduled if is_about_to_start else is_alive(_process(attempt, ""))
    if not alive:
        return Seen(replace(run, state=State.LOST, tokens_per_s=None), PROCESS_GONE)
    return Seen(run, None if scheduled else SCHEDULER_GONE)


def _process(attempt: Mapping[str, Any], prefix: str) -> Process:
    pid, started = attempt[f"{prefix}pid"] or 0, attempt[f"{prefix}pid_started"] or ""
    return Process(attempt["host"], attempt["boot_id"] or "", pid, started)
