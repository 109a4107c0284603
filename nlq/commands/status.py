"""`nlq status` and `nlq show`: what the queue holds. They open the database read-only."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from nlq.commands._console import console, dash, print_json
from nlq.commands._table import STYLES
from nlq.commands._truth import true_members, truth
from nlq.commands.logs import tail
from nlq.core.peaks import published_peak
from nlq.core.run import FINISHED, Member, RunRecord, State
from nlq.core.spec import dotted
from nlq.stats.printing import settings
from nlq.store.reader import Reader

LAST_LINES = 10
FORMATS = {"loss_nats": ".4f", "tokens_per_s": ",.0f", "step_ms_median": ".2f", "step_ms_95th": ".2f",
           "flops_per_s": ".2e", "mfu": ".1%", "eval_share": ".1%", "peak_memory_bytes": ",d",
           "energy_joules": ",.0f"}  # fmt: skip
ATTEMPT_COLUMNS = ("number", "resumed_step", "slot", "device", "threads", "claimed_at_utc", "ended", "exit_code")


def status(db: Path, sweep: str | None, *, as_json: bool) -> None:
    """Every run of a sweep (the latest unless named), and how many are in each state."""
    reader = Reader(db)
    record = reader.sweep(sweep)
    members, remarks = true_members(reader, record.members)
    states = Counter(str(m.run.state) for m in {m.run.run_id: m for m in members}.values())
    if as_json:
        runs = [{**_member_row(m), "remark": remarks.get(m.run.run_id)} for m in members]
        print_json({"sweep": record.name, "states": dict(states), "runs": runs, "sweeps": reader.sweep_names()})
        return
    out = console()
    out.print(_table(members, f"{record.name} in {db}"))
    out.print(", ".join(f"{number} {state}" for state, number in states.items()))
    for run_id, remark in remarks.items():
        out.print(f"{run_id}: {remark}", markup=False, style="yellow", soft_wrap=True)
    others = [name for name in reader.sweep_names() if name != record.name]
    if others:
        out.print(f"other sweeps: {', '.join(others)} (nlq status --sweep NAME)", style="dim")


def show(db: Path, prefix: str, *, as_json: bool) -> None:
    """One run: its state, spec, attempts, events, evaluations, and the end of its log."""
    reader = Reader(db)
    run, remark = truth(reader, reader.run(prefix))
    attempts = [{"number": n, **one} for n, one in enumerate(reader.attempts(run.run_id), 1)]
    events = reader.events(run.run_id)
    evals = [point._asdict() for point in reader.evals([run.run_id])[run.run_id]]
    speed = _speed(reader, run)
    if as_json:
        rows = {"speed": speed, "spec": run.spec, "attempts": attempts, "events": events, "evals": evals}
        print_json({**_run_row(run), "remark": remark, **rows, "log": _log_end(run.log_path)})
        return
    out = console()
    out.print(_facts(run))
    if remark:
        out.print(remark, markup=False, style="yellow")
    out.print(_listing("speed", [speed], tuple(speed)))
    out.print(_listing("evaluations", evals, ("step", "split", "loss_nats", "token_count")))
    out.print(_listing("attempts", attempts, ATTEMPT_COLUMNS))
    out.print(_listing("events", events, ("at_utc", "kind", "message")))
    lines = _log_end(run.log_path)
    if lines:
        out.print(f"the end of {run.log_path} (all of it: nlq logs {run.run_id})", markup=False, soft_wrap=True)
    for line in lines:
        out.print(line, markup=False, style="dim", soft_wrap=True)


def _speed(reader: Reader, run: RunRecord) -> dict[str, Any]:
    """Times of steps, their work a second (MFU: as a share of the GPU's published peak), evaluation's share, and what
    the run took of memory and energy."""
    steps_ms, evals_ms = reader.times(run.run_id)
    median, slow = (steps_ms[int(share * len(steps_ms))] if steps_ms else None for share in (0.5, 0.95))
    work = run.tokens_per_s and run.flops_per_token and run.tokens_per_s * run.flops_per_token
    peak = published_peak(run.provenance.device) if run.provenance else None
    return {
        "tokens_per_s": run.tokens_per_s,
        "step_ms_median": median,
        "step_ms_95th": slow,
        "flops_per_s": work,
        "mfu": work / peak if work and peak else None,
        "eval_share": evals_ms / (evals_ms + sum(steps_ms)) if steps_ms else None,
        "peak_memory_bytes": max((one["peak_memory_bytes"] or 0 for one in reader.attempts(run.run_id)), default=0)
        or None,
        "energy_joules": run.energy_joules,
    }


def _member_row(member: Member) -> dict[str, Any]:
    return {"arm": member.arm, "label": member.label, "point": dict(member.point), **_run_row(member.run)}


def _run_row(run: RunRecord) -> dict[str, Any]:
    row = {name: value for name, value in vars(run).items() if name != "spec"}
    return {**row, "provenance": vars(run.provenance) if run.provenance else None}


def _table(members: Sequence[Member], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("run", "arm", "point"):
        table.add_column(name, overflow="fold", no_wrap=name == "run")
    for name in ("seed", "state", "step", "train loss", "tok/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for m in members:
        table.add_row(*_cells(m), style=STYLES.get(m.run.state))
    return table


def _cells(member: Member) -> list[str]:
    run = member.run
    state = f"diverged at step {run.diverged_step}" if run.state is State.DIVERGED else str(run.state)
    loss = dash(run.last_loss_nats, ".4f")
    steps = f"{run.steps_planned if run.state in FINISHED and run.diverged_step is None else run.steps_done}"
    place = [run.run_id, member.label, settings(member.point), str(run.seed)]
    return [*place, state, f"{steps}/{run.steps_planned}", loss, dash(run.tokens_per_s, ",.0f")]


def _facts(run: RunRecord) -> Table:
    table = Table(title=f"run {run.run_id}", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    elsewhere = ("provenance", "energy_joules")
    facts = {name: value for name, value in _run_row(run).items() if name not in elsewhere and value is not None}
    provenance = vars(run.provenance) if run.provenance else {}
    for name, value in {**facts, **provenance, **dotted(run.spec)}.items():
        table.add_row(name, dash(value))
    return table


def _listing(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(dash(row[name], FORMATS.get(name, "")) for name in columns))
    return table


def _log_end(path: str | None) -> list[str]:
    if path is None or not Path(path).is_file():
        return []
    with Path(path).open("rb") as file:
        return tail(file, LAST_LINES).decode("utf-8", errors="replace").splitlines()
