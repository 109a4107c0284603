"""`nlq sweep --dry-run`: the runs of a spec with what each would cost. Nothing is queued."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.table import Table

from nlq.commands._console import console, duration, print_json, size, slots_text
from nlq.commands.planning import Planned, plan_to_look
from nlq.core.launch import Slot
from nlq.core.sweep import PlannedRun
from nlq.models.cost import Cost, training_bytes
from nlq.stats.printing import count, plural, settings
from nlq.store.queue import RUN_ID_LENGTH

PROBE_S = 0.2
STEP_SHARE = 0.35
"""The share of a step's time that its matrix products take on a CPU, roughly; the estimate says that it is rough."""
STARTUP_S = 4.0


class Estimate(NamedTuple):
    """What one run will take; `seconds` is rough, the rest is exact."""

    run: PlannedRun
    cost: Cost
    tokens: int
    flops: int
    memory_bytes: int
    seconds: float


def dry_run(spec: Path, cache: Path, slots: list[Slot], *, as_json: bool) -> None:
    """Print the table, or its rows as JSON."""
    planned = plan_to_look(spec, cache)
    estimates = estimate(planned, slots)
    if as_json:
        print_json({"sweep": planned.sweep.name, "runs": [_row(e) for e in estimates], "notes": planned.remarks})
        return
    _print_table(planned, estimates, slots)


def estimate(planned: Planned, slots: list[Slot]) -> list[Estimate]:
    """One estimate a run, in the order of expansion."""
    rates: dict[int, float] = {}
    for run in planned.sweep.runs:
        width = run.spec.model.width
        rates[width] = rates.get(width) or matmul_flops_per_s(width, slots[0])
    return [_estimate(run, planned.costs[run.key], rates[run.spec.model.width]) for run in planned.sweep.runs]


def matmul_flops_per_s(width: int, slot: Slot) -> float:
    """Measured rate of one slot's matrix products at a model's width, float32."""
    torch.set_num_threads(slot.threads)
    device = slot.device if torch.cuda.is_available() else "cpu"
    a, b = torch.randn(1024, width, device=device), torch.randn(width, 4 * width, device=device)
    products, began = 0, time.perf_counter()
    while time.perf_counter() - began < PROBE_S or not products:
        (a @ b)[0, 0].item()
        products += 1
    return products * 2 * a.numel() * b.shape[1] / (time.perf_counter() - began)


def _estimate(run: PlannedRun, one: Cost, rate: float) -> Estimate:
    spec = run.spec
    tokens = spec.train.steps * spec.train.batch_tokens
    evaluated = len(spec.eval_steps()) * spec.train.eval_windows * spec.model.context
    flops = tokens * one.flops_per_token
    work = flops + evaluated * one.flops_per_token // 3  # an evaluation is a forward pass: a third of a step
    memory = training_bytes(one, spec.train.micro_batch or spec.sequences_per_step)
    return Estimate(run, one, tokens, flops, memory, STARTUP_S + work / (rate * STEP_SHARE))


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
        "spec": e.run.spec.model_dump(),
    }


def _print_table(planned: Planned, estimates: list[Estimate], slots: list[Slot]) -> None:
    table = Table(title=f"{planned.sweep.name}: {plural(len(estimates), 'run')}, nothing queued", title_justify="left")
    for name in ("arm", "point"):
        table.add_column(name, overflow="fold")
    for name in ("seed", "spec key", "N.E. params", "all params", "FLOPs", "tokens", "memory", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for e in estimates:
        table.add_row(*_cells(e))
    out = console()
    out.print(table)
    seconds = max(sum(e.seconds for e in estimates) / len(slots), *(e.seconds for e in estimates), 0)
    out.print(
        f"In all {count(sum(e.tokens for e in estimates))} tokens and {sum(e.flops for e in estimates):.2e} FLOPs, "
        f"roughly {duration(seconds)} on {slots_text(slots)}."
    )
    out.print(
        "Times are rough: this machine's matrix products were timed at each width, and a step does more than those."
    )
    for remark in planned.remarks:
        out.print(remark, style="yellow")


def _cells(e: Estimate) -> list[str]:
    exact = [f"{e.cost.non_embedding_params:,}", f"{e.cost.total_params:,}", f"{e.flops:.2e}", count(e.tokens)]
    key = e.run.key[:RUN_ID_LENGTH]
    rough = [size(e.memory_bytes), duration(e.seconds)]
    return [e.run.arm, settings(e.run.point), str(e.run.spec.seed), key, *exact, *rough]
