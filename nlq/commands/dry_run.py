"""`nlq sweep --dry-run`: the runs of a spec with what each would cost. Nothing is queued."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch
from rich.table import Table

from nlq.commands._console import console, duration, print_json, size, slots_text
from nlq.commands.planning import Planned, plan_to_look, too_many_devices
from nlq.core.launch import Slot
from nlq.core.spec import RunSpec
from nlq.core.sweep import PlannedRun
from nlq.forkserver import FORKS_SAFELY
from nlq.models.cost import Cost, spread_bytes, training_bytes
from nlq.provenance import source_sha256
from nlq.stats.printing import count, plural, settings
from nlq.store.queue import RUN_ID_LENGTH
from nlq.training.checkpoint import checkpoint_bytes, checkpoint_seconds, kept_bytes
from nlq.training.device import parameter_dtype
from nlq.training.engine import is_compiled
from nlq.training.pace import Pace, Paces, in_processes, peak_memory_bytes

PROBE_S = 0.2
HEAVY_FLOPS = 3e11
"""Work of one sequence from which a step is not measured but worked out: a measurement would take minutes."""
STEP_SHARE = 0.6
"""The share of such a step's time that its matrix products take, roughly."""
IMPORT_S, START_S = 6.0, 0.2
"""Once for a sweep (the command and its fork server import) and once for a run: what goes by beside steps,
evaluations and checkpoints."""
COLD_START_S = 3.0
"""What a run takes to begin where it cannot be forked and imports by itself."""
COMPILER_BYTES = 105 << 20
"""What the compiler takes of a run's own memory on a CPU, roughly."""


class Estimate(NamedTuple):
    """What one run will take; counts are exact, `seconds`, `eval_share` (of them) and `memory_bytes` are measured.

    The steps of a run that `is_compiled` are timed as written, so it takes less, apart from compiling.
    """

    run: PlannedRun
    cost: Cost
    tokens: int
    flops: int
    memory_bytes: int
    seconds: float
    eval_share: float
    is_rough: bool
    is_compiled: bool


def dry_run(spec: Path, cache: Path, slots: list[Slot], *, as_json: bool) -> None:
    """Print the table, or its rows as JSON."""
    planned, estimates, busy = _estimates(spec, cache, slots)
    beyond = too_many_devices(planned.sweep, slots)
    remarks = [*planned.remarks, *too_large(estimates, slots), *([beyond.message] if beyond else []), *busy]
    if as_json:
        print_json({"sweep": planned.sweep.name, "runs": [_row(e) for e in estimates], "notes": remarks})
        return
    _print_table(planned, estimates, slots, remarks)


def estimated_seconds(spec: Path, cache: Path, slots: list[Slot]) -> float:
    """What the whole sweep of a spec file will take on some slots; infinite where a run needs more devices.

    Says so on standard error where other programs disturbed the measurement. Raises NlqError, as `dry_run` does.
    """
    planned, estimates, busy = _estimates(spec, cache, slots)
    for remark in busy:
        console(stderr=True).print(remark, style="yellow")
    return math.inf if too_many_devices(planned.sweep, slots) else _seconds(estimates, slots)


def _estimates(spec: Path, cache: Path, slots: list[Slot]) -> tuple[Planned, list[Estimate], list[str]]:
    """The sweep, what each run takes, and remarks about the measurement."""
    screen = console(stderr=True)
    paces = Paces(cache, slots, source_sha256(), lambda text: screen.print(text, style="dim"))
    planned = plan_to_look(spec, cache, paces)
    estimates = [_estimate(run, planned.costs[run.key], paces) for run in planned.sweep.runs]
    return planned, estimates, paces.remarks()


def _seconds(estimates: list[Estimate], slots: list[Slot]) -> float:
    in_slots = sum(e.seconds * e.run.spec.train.devices for e in estimates)
    return IMPORT_S + max(in_slots / len(slots), *(e.seconds for e in estimates), 0)


def _estimate(run: PlannedRun, one: Cost, paces: Paces) -> Estimate:
    spec = run.spec
    tokens = spec.train.steps * spec.train.batch_tokens
    is_rough = one.flops_per_token * spec.model.context > HEAVY_FLOPS
    pace = _rough_pace(spec, one, paces.slots[0]) if is_rough else paces.of(spec, one)
    eval_s = len(spec.eval_steps()) * spec.train.eval_windows * spec.model.context * pace.eval_token_s
    training_s = spec.train.steps * pace.step_s + eval_s
    start_s = START_S if FORKS_SAFELY else COLD_START_S
    seconds = start_s + training_s + checkpoint_seconds(spec, one.total_params, training_s)
    flops = tokens * one.flops_per_token
    compiled = is_compiled(spec, one.total_params, torch.device(paces.slots[0].device))
    memory_bytes = pace.memory_bytes + _compiler_bytes(paces.slots[0], compiled=compiled) - _saved_bytes(spec, one)
    return Estimate(run, one, tokens, flops, memory_bytes, seconds, eval_s / seconds, is_rough, compiled)


def _compiler_bytes(slot: Slot, *, compiled: bool) -> int:
    """On a GPU the compiler's memory is the host's, and is not counted."""
    return COMPILER_BYTES if compiled and slot.device == "cpu" else 0


def _saved_bytes(spec: RunSpec, one: Cost) -> int:
    """What a device of a sharded run does without."""
    number_bytes = parameter_dtype(spec).itemsize
    return spread_bytes(one, spec.train.devices, number_bytes) if spec.train.sharded else 0


def _rough_pace(spec: RunSpec, one: Cost, slot: Slot) -> Pace:
    """From the rate of matrix products alone; an evaluation is a forward pass, a third of a step."""
    ((flops_per_s, process_bytes),) = in_processes(_matmul_pace, spec, [slot])
    token_s = one.flops_per_token / (flops_per_s * STEP_SHARE)
    memory_bytes = process_bytes + training_bytes(one, spec.train.micro_batch or spec.sequences_per_device)
    return Pace(token_s * spec.train.batch_tokens / spec.train.devices, token_s / 3, memory_bytes)


def _matmul_pace(spec: RunSpec, slot: Slot) -> tuple[float, int]:
    """Measured FLOP/s of one slot's matrix products at a model's width and precision, and the memory of a process
    that does nothing else."""
    torch.set_num_threads(slot.threads)
    device = slot.device if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if spec.train.precision == "bf16" else torch.float32
    width = spec.model.width
    a, b = (torch.randn(size, device=device).to(dtype) for size in ((1024, width), (width, 4 * width)))
    products, began = 0, time.perf_counter()
    while time.perf_counter() - began < PROBE_S or not products:
        (a @ b)[0, 0].item()
        products += 1
    flops_per_s = products * 2 * a.numel() * b.shape[1] / (time.perf_counter() - began)
    return flops_per_s, peak_memory_bytes(torch.device(device))


def too_large(estimates: list[Estimate], slots: list[Slot]) -> list[str]:
    """A remark for each arm whose runs will not fit beside each other, with the largest micro-batch that would."""
    room = _memory_bytes(slots)
    arms = {e.run.arm: e for e in estimates if e.memory_bytes > room}
    return [f"{arm}: a run needs about {size(e.memory_bytes)} and {size(room)} is free; {_would_fit(e, room)}"
            for arm, e in arms.items()]  # fmt: skip


def _would_fit(e: Estimate, room: int) -> str:
    rows = e.run.spec.sequences_per_device
    now = e.run.spec.train.micro_batch or rows
    fitting = [
        m for m in range(1, now) if rows % m == 0 and e.memory_bytes - (now - m) * e.cost.activation_bytes <= room
    ]
    return (
        f"train.micro_batch: {fitting[-1]} would fit"
        if fitting
        else "no micro-batch would fit: fewer slots, or a smaller model"
    )


def _memory_bytes(slots: list[Slot]) -> int:
    """What is free for each slot."""
    if slots[0].device == "cpu" or not torch.cuda.is_available():
        return int(psutil.virtual_memory().available) // len(slots)
    return int(torch.cuda.mem_get_info()[0])


def _row(e: Estimate) -> dict[str, Any]:
    return {
        "arm": e.run.arm,
        "label": e.run.label,
        "point": dict(e.run.point),
        "seed": e.run.spec.seed,
        "run_id": e.run.key[:RUN_ID_LENGTH],
        "spec_key": e.run.key,
        "non_embedding_params": e.cost.non_embedding_params,
        "total_params": e.cost.total_params,
        "flops": e.flops,
        "tokens": e.tokens,
        "memory_bytes": e.memory_bytes,
        "estimated_s": e.seconds,
        "estimated_eval_share": e.eval_share,
        "compiled": e.is_compiled,
        "checkpoint_bytes": checkpoint_bytes(e.run.spec, e.cost.total_params),
        "spec": e.run.spec.model_dump(),
    }


def _print_table(planned: Planned, estimates: list[Estimate], slots: list[Slot], remarks: list[str]) -> None:
    table = Table(title=f"{planned.sweep.name}: {plural(len(estimates), 'run')}, nothing queued", title_justify="left")
    for name in ("arm", "point"):
        table.add_column(name, overflow="fold")
    for name in ("seed", "spec key", "N.E. params", "all params", "FLOPs", "tokens", "memory", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for e in estimates:
        table.add_row(*_cells(e))
    out = console()
    out.print(table)
    out.print("\n".join(_totals(estimates, slots)))
    for remark in remarks:
        out.print(remark, style="yellow")


def _totals(estimates: list[Estimate], slots: list[Slot]) -> Iterator[str]:
    work = f"{count(sum(e.tokens for e in estimates))} tokens and {sum(e.flops for e in estimates):.2e} FLOPs"
    yield f"In all {work}, about {duration(_seconds(estimates, slots))} on {slots_text(slots)}."
    share = sum(e.eval_share * e.seconds for e in estimates) / max(1e-9, sum(e.seconds for e in estimates))
    yield f"Evaluation takes {100 * share:.0f} % of that."
    while_training = sorted((checkpoint_bytes(e.run.spec, e.cost.total_params) for e in estimates), reverse=True)
    kept = sum(kept_bytes(e.run.spec, e.cost.total_params) for e in estimates)
    stays = f"; {size(kept)} of it stays" if kept else ""
    yield f"Checkpoints take up to {size(sum(while_training[: len(slots)]) + kept)} of disk{stays}."
    if any(e.is_rough for e in estimates):
        yield "Times are rough: the steps are too large to try, so this machine's matrix products were timed alone."
    if compiled := sum(e.is_compiled for e in estimates):
        long_enough = f"{plural(compiled, 'run')} will be compiled"
        yield f"{long_enough}: steps were timed as written, so expect less, beside a minute or so of compiling."


def _cells(e: Estimate) -> list[str]:
    exact = [f"{e.cost.non_embedding_params:,}", f"{e.cost.total_params:,}", f"{e.flops:.2e}", count(e.tokens)]
    key = e.run.key[:RUN_ID_LENGTH]
    rough = [size(e.memory_bytes), duration(e.seconds)]
    return [e.run.arm, settings(e.run.point), str(e.run.spec.seed), key, *exact, *rough]
