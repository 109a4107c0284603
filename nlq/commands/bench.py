"""`nlq bench`: what a step costs on this machine, beside its floor, a plain step and a tuned one."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from rich.table import Table

from nlq.bench.arms import WORKS
from nlq.bench.arms import arms as measure_arms
from nlq.bench.compare import CONTENDERS, Setting, compare
from nlq.bench.contenders import PLAIN
from nlq.bench.interleave import Turns
from nlq.bench.sizes import Size, precision_of, sizes_named
from nlq.bench.sweep import RUNS, STEPS
from nlq.bench.sweep import sweep as measure_sweep
from nlq.commands._console import console, dash, print_json, size
from nlq.core.errors import NlqError
from nlq.data.prepare import cache_folder
from nlq.runners._slots import cores
from nlq.runners.local import HUGE_PAGES
from nlq.stats.printing import DASH, plural
from nlq.training.device import open_device

FIRST_GPU = "cuda:0"

LIMIT_S = 600.0
"""What the command takes at most, by and large, when nothing is asked for."""

START_S = 4.0
"""What a process takes to begin that imports PyTorch, roughly."""

ARMS_SIZE = "small"


def bench(
    sizes: list[str],
    threads: int | None,
    device: str | None,
    turns: Turns,
    *,
    arms: bool,
    sweep: bool,
    compiled: bool,
    as_json: bool,
) -> None:
    """Measure and print. Without `arms`, `sweep` or sizes: every size, and the sweep if there is time."""
    began, setting = time.monotonic(), _setting(threads, device, turns, compiled=compiled)
    chosen = sizes_named(sizes)
    found: dict[str, Any] = {"machine": _machine(setting), "rows": [], "arms": [], "sweep": None}
    if sizes or not (arms or sweep):
        limit_s = float("inf") if sizes else LIMIT_S
        found["rows"] = _rows(chosen, setting, began + limit_s)
    if arms:
        arms_setting = setting._replace(compiled=False)
        found["arms"] = [
            row
            for one in (chosen if sizes else sizes_named([ARMS_SIZE]))
            for row in measure_arms(one, arms_setting, _say)
        ]
    nothing_asked = not (sizes or arms or sweep)
    if nothing_asked and time.monotonic() - began + _sweep_s(found["rows"][0]) > LIMIT_S:
        _say("no time is left for the sweep of eight runs: nlq bench --sweep")
    elif sweep or nothing_asked:
        found["sweep"] = measure_sweep(setting, _say)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _rows(sizes: Sequence[Size], setting: Setting, until: float) -> list[dict[str, Any]]:
    """A row a size; none but the first is begun after `until`, by the monotonic clock."""
    rows: list[dict[str, Any]] = []
    for one in sizes:
        if rows and time.monotonic() > until:
            _say(f"no time is left for {one.name} on a machine as busy as this: nlq bench --size {one.name}")
        else:
            rows.append(compare(one, setting, _say))
    return rows


def turns_of(rounds: int | None, seconds: float | None) -> Turns:
    """How long to measure, by options. Raises NlqError."""
    if rounds is not None and rounds < 1:
        raise NlqError(f"--rounds {rounds}: how often each contender has its turn, from 1 on", "--rounds 5")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise NlqError(f"--seconds {seconds}: how long a turn lasts, above 0", "--seconds 1")
    return Turns(rounds=rounds) if seconds is None else Turns(seconds, rounds)


def _setting(threads: int | None, device: str | None, turns: Turns, *, compiled: bool) -> Setting:
    most = cores()
    if threads is not None and not 1 <= threads <= most:
        raise NlqError(f"--threads {threads}: this machine has {most} cores", f"--threads 1 to --threads {most}")
    if device not in (None, "cpu", FIRST_GPU):
        raise NlqError(f"--device {device}: no such device", f"--device cpu, or {FIRST_GPU}")
    place = device or (FIRST_GPU if torch.cuda.is_available() else "cpu")
    memory = {**HUGE_PAGES, "TORCHINDUCTOR_CACHE_DIR": str(cache_folder() / "compiled")}
    return Setting(place, threads or most, precision_of(place), turns, memory, compiled)


def _sweep_s(tiny: Mapping[str, Any]) -> float:
    """What the sweep takes with its plain twins, roughly. Each of them imports PyTorch; nlq does it twice, in the
    command and in the server that forks its runs, and trains about as long as they do."""
    step_s: float = tiny["contenders"][PLAIN]["step_ms"] / 1000
    plain_s = RUNS * (START_S + STEPS * step_s)
    nlq_s = 2 * START_S + RUNS * STEPS * step_s
    return plain_s + nlq_s


def _machine(setting: Setting) -> dict[str, Any]:
    """The device by its name, and how busy the machine was before: the load of the last minute."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    name = open_device(setting.device, setting.threads).name
    return {"device": name, "threads": setting.threads, "torch": torch.__version__, "load_before": load}


def _say(text: str) -> None:
    console(stderr=True).print(text, style="dim")


def _print(found: Mapping[str, Any]) -> None:
    out, machine = console(), found["machine"]
    threads = plural(machine["threads"], "thread")
    out.print(
        f"{machine['device']}, {threads}, PyTorch {machine['torch']}; load before {dash(machine['load_before'], '.1f')}"
    )
    for row in found["rows"]:
        out.print(_size_table(row))
    if found["arms"]:
        out.print(_arms_table(found["arms"]))
    if found["sweep"]:
        out.print(_sweep_line(found["sweep"]))


def _size_table(row: Mapping[str, Any]) -> Table:
    shape = row["shape"]
    title = f"{row['size']}: {shape['layers']} layers, {shape['heads']} heads, width {shape['width']}, "
    title += f"{shape['rows']} × {shape['context']} tokens a step, vocabulary {shape['vocab']}; {row['rounds']} rounds"
    table = Table(title=title, title_justify="left")
    table.add_column("step")
    for header in ("tokens/s", "ms", "share of floor", "nlq is", "peak memory"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("how", overflow="fold")
    for name in CONTENDERS:
        table.add_row(name, *_cells(row, name))
    return table


def _cells(row: Mapping[str, Any], name: str) -> list[str]:
    one = row["contenders"][name]
    ratio = _times(row, f"ratio_{name}") if f"ratio_{name}" in row else ""
    middle = [f"{one['tokens_per_s']:,.0f}", f"{one['step_ms']:.1f}", f"{100 * one['share_of_floor']:.0f} %", ratio]
    return [*middle, size(one["peak_memory_bytes"]), one["how"]]


def _times(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f} × ({row[f'{name}_low']:.2f}–{row[f'{name}_high']:.2f})"


def _arms_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Ratios of time; the baseline's own times in milliseconds."""
    names = ", ".join(dict.fromkeys(row["size"] for row in rows))
    table = Table(title=f"what variants cost beside the baseline at {names}, not compiled", title_justify="left")
    table.add_column("variant", no_wrap=True)
    for header in ("N.E. params", "FLOPs", *WORKS, "peak memory"):
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row["variant"], f"{row['non_embedding_params']:,}", *_arm_cells(row))
    table.caption = "; ".join(f"{work}: {words}" for work, words in WORKS.items())
    return table


def _arm_cells(row: Mapping[str, Any]) -> list[str]:
    if "ratio_flops" not in row:
        return ["1", *(f"{row[f'{work}_ms']:.1f} ms" for work in WORKS), DASH]
    ratios = [_times(row, f"ratio_{work}") for work in WORKS]
    return [f"{row['ratio_flops']:.3f} ×", *ratios, size(row["peak_memory_bytes"])]


def _sweep_line(row: Mapping[str, Any]) -> str:
    return (
        f"{row['runs']} tiny runs of {row['steps']} steps: nlq sweep {row['nlq_s']:.1f} s, plain processes one after "
        f"the other {row['plain_s']:.1f} s: {row['ratio']:.2f} ×"
    )
