"""`nlq cancel`, `nlq retry`, `nlq priority`: changes to chosen runs, with or without a scheduler at work."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nlq.commands._console import console, print_json
from nlq.commands._table import name_of
from nlq.core.errors import NlqError, nearest
from nlq.core.run import Member, RunRecord, State
from nlq.runners._process import AdoptedHandle, is_alive, this_process
from nlq.scheduler import GRACE_S
from nlq.stats.printing import plural
from nlq.store.maintenance import up_to_date
from nlq.store.queue import OpenAttempt, Queue
from nlq.store.reader import Reader

TRIES = 20
"""A run may be claimed, or go back to the queue, between a look and a cancel; then it is cancelled once more."""

ONGOING = (State.QUEUED, State.RUNNING, State.LOST)


@dataclass(frozen=True)
class Choice:
    """Which runs are meant: ids (or their beginnings), narrowed by arm, state and sweep."""

    ids: Sequence[str] = ()
    arms: Sequence[str] = ()
    states: Sequence[str] = ()
    sweep: str | None = None


class Change(NamedTuple):
    """What became of one chosen run; `why` says why it was left alone."""

    run_id: str
    name: str
    before: State
    state: State
    why: str | None = None


def cancel(db: Path, choice: Choice, *, as_json: bool) -> int:
    """QUEUED and RUNNING → CANCELLED. Processes of this machine are ended, with all that they started."""
    reader, chosen = _chosen(db, choice, "cancel")
    wanted = [run.run_id for run in chosen if run.state in ONGOING]
    queue = Queue(db)
    try:
        remarks = _cancel(queue, reader, wanted)
    finally:
        queue.close()
    why = {State.COMPLETED: "completed: its result stands", State.CANCELLED: "cancelled already"}
    _tell(reader, chosen, wanted, "cancelled", why, remarks, as_json)
    return 0


def retry(db: Path, choice: Choice, *, as_json: bool) -> int:
    """FAILED and CANCELLED → QUEUED."""
    reader, chosen = _chosen(db, choice, "retry")
    wanted = [run.run_id for run in chosen if run.state in (State.FAILED, State.CANCELLED)]
    _with(db, lambda queue: queue.retry(wanted))
    why = {State.COMPLETED: "completed: its result stands", State.QUEUED: "queued already"}
    remarks = ["train them: nlq work"] if wanted else []
    _tell(reader, chosen, wanted, "queued again", why, remarks, as_json)
    return 0


def priority(db: Path, value: int, choice: Choice, *, as_json: bool) -> int:
    """Runs of a higher priority are claimed first; 0 unless set."""
    reader, chosen = _chosen(db, choice, f"priority {value}")
    unfinished = (State.QUEUED, State.RUNNING, State.FAILED, State.CANCELLED, State.LOST)
    wanted = [run.run_id for run in chosen if run.state in unfinished]
    _with(db, lambda queue: queue.prioritise(wanted, value))
    _tell(reader, chosen, wanted, f"priority {value}", {State.COMPLETED: "completed"}, [], as_json)
    return 0


def _chosen(db: Path, choice: Choice, command: str) -> tuple[Reader, list[RunRecord]]:
    """The runs that are meant. Raises NlqError when nothing was said, or nothing fits."""
    if not (choice.ids or choice.arms or choice.states or choice.sweep):
        hints = ("RUN …", "--arm ARM", "--state STATE", "--sweep NAME")
        raise NlqError("say which runs", "; ".join(f"nlq {command} {hint}" for hint in hints))
    known = [str(state) for state in State]
    for state in choice.states:
        if state not in known:
            raise NlqError(f'no state "{state}"', f"--state: {nearest(state, known)}")
    up_to_date(db, this_process())
    reader = Reader(db)
    found = _of_sweep(reader, choice) if choice.arms or choice.sweep or not choice.ids else None
    runs = [reader.run(prefix) for prefix in choice.ids] if choice.ids else [m.run for m in found or ()]
    allowed = None if found is None else {m.run.run_id for m in found}
    fitting = {r.run_id: r for r in runs if (allowed is None or r.run_id in allowed) and _fits(r, choice)}
    if not fitting:
        sweep = f" --sweep {choice.sweep}" if choice.sweep else ""
        raise NlqError(f"no run fits {_words(choice)}", f"see what there is: nlq status{sweep}")
    return reader, list(fitting.values())


def _of_sweep(reader: Reader, choice: Choice) -> list[Member]:
    record = reader.sweep(choice.sweep)
    known = list(record.arms())
    for arm in choice.arms:
        if arm not in known:
            raise NlqError(f'no arm "{arm}" in sweep {record.name}', f"--arm: {nearest(arm, known)}; --sweep NAME")
    return [m for m in record.members if not choice.arms or m.arm in choice.arms]


def _fits(run: RunRecord, choice: Choice) -> bool:
    return not choice.states or run.state in choice.states


def _words(choice: Choice) -> str:
    options = [f"--arm {arm}" for arm in choice.arms] + [f"--state {state}" for state in choice.states]
    return " ".join([*choice.ids, *options, *([f"--sweep {choice.sweep}"] if choice.sweep else [])])


def _with(db: Path, change: Callable[[Queue], int]) -> None:
    queue = Queue(db)
    try:
        change(queue)
    finally:
        queue.close()


def _cancel(queue: Queue, reader: Reader, wanted: Sequence[str]) -> list[str]:
    remarks: list[str] = []
    for _ in range(TRIES):
        still = [run_id for run_id in wanted if reader.run(run_id).state in ONGOING]
        if not still:
            break
        remarks += _end(queue.cancel(still))
    return remarks


def _end(attempts: Sequence[OpenAttempt]) -> list[str]:
    """End the processes of cancelled attempts, side by side; remarks about those that cannot be ended from here."""
    separate = [attempt.worker for attempt in attempts if attempt.worker != attempt.scheduler]
    workers = [worker for worker in separate if worker and is_alive(worker)]
    if workers:
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda worker: AdoptedHandle(worker).stop(GRACE_S), workers))
    return [remark for attempt in attempts if (remark := _remark(attempt))]


def _remark(attempt: OpenAttempt) -> str | None:
    """The database refuses the rows of a cancelled attempt, so that it stops by itself where no signal reaches it."""
    if attempt.scheduler.host != this_process().host:
        return f"{attempt.run_id} trains on {attempt.scheduler.host}: its process there stops at its next write"
    if attempt.worker == attempt.scheduler:
        return f"{attempt.run_id} trains inside its scheduler (--runner inline): it stops at its next write"
    return None


def _tell(
    reader: Reader,
    chosen: Sequence[RunRecord],
    wanted: Sequence[str],
    done: str,
    why: dict[State, str],
    remarks: Sequence[str],
    as_json: bool,
) -> None:
    names = {m.run.run_id: name_of(m) for n in reader.sweep_names() for m in reader.sweep(n).members}
    changes = []
    for run in chosen:
        left = None if run.run_id in wanted else why.get(run.state, str(run.state))
        now = reader.run(run.run_id).state
        changes.append(Change(run.run_id, names.get(run.run_id, f"seed {run.seed}"), run.state, now, left))
    if as_json:
        changed, left_alone = ([c._asdict() for c in changes if bool(c.why) is alone] for alone in (False, True))
        print_json({"changed": changed, "left_alone": left_alone, "remarks": remarks})
        return
    out = console()
    for one in changes:
        what = f"left alone ({one.why})" if one.why else f"{done} (was {one.before})"
        out.print(f"{one.run_id}  {one.name}: {what}", markup=False, soft_wrap=True)
    out.print(f"{plural(len(wanted), 'run')} of {len(chosen)} changed")
    for remark in remarks:
        out.print(remark, markup=False, soft_wrap=True)
