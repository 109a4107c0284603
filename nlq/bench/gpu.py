"""GPT-2 small on a GPU: nlq's arms beside a step after nanoGPT, in one run on one device. `make bench-gpu`."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from nlq.bench.child import Child
from nlq.bench.compare import Say, Setting, made_up_tokens, start
from nlq.bench.contenders import NLQ, TUNED
from nlq.bench.interleave import Turns, interleave, ratios, spread
from nlq.bench.sizes import Size, spec_of
from nlq.core.errors import NlqError
from nlq.core.peaks import published_peak
from nlq.models.cost import cost

REFERENCE = "nanoGPT-style step"
ARMS = {"baseline": "baseline", "identity": "identity", "nonlinear_q": "nonlinear_q", "mlp-4.75": "mlp_w"}
"""Names as the paper's tables have them, and their variants."""

LEAST_MEMORY = {16: 60e9, 8: 30e9, 4: 0.0}
"""Sequences of a step, and from which memory on two models with their whole logits surely fit."""

LIMIT_S = 420.0
"""No arm but the first is begun after this, so that the whole stays under eight minutes."""

Taken = Mapping[str, Sequence[float]]


def measure(size: Size, setting: Setting, say: Say, limit_s: float = LIMIT_S) -> list[dict[str, Any]]:
    """A row a system: the reference, and the first arm, and each other that can be begun before `limit_s`."""
    began, taken, peaks = time.monotonic(), dict[str, Taken](), dict[str, int]()
    rate = matmul_flops_per_s(setting.device, 8192 if setting.device != "cpu" else 256)
    with ExitStack() as stack:
        tokens = stack.enter_context(made_up_tokens(size.vocab))
        say(f"warming up the {REFERENCE}")
        reference = stack.enter_context(start(size, setting, TUNED, tokens)).make()
        for name, variant in ARMS.items():
            if taken and time.monotonic() - began > limit_s:
                say(f"{name}: left out, the time is up")
                continue
            say(f"measuring {name}")
            with start(size, setting, NLQ, tokens, variant) as child:
                taken[name], peaks[name] = _pair(reference, child.make(), setting)
        reference.end()
    peaks[REFERENCE] = reference.peak_memory_bytes
    return rows(size, taken, peaks, rate, published_peak(device_name(setting.device)))


def rows(
    size: Size, taken: Mapping[str, Taken], peaks: Mapping[str, int], rate: float, published: float | None
) -> list[dict[str, Any]]:
    """From seconds a step, one number a round: of each arm (`nlq`) and of the reference beside it (`reference`)."""
    own = [seconds for pair in taken.values() for seconds in pair["reference"]]
    found = [_row(size, REFERENCE, "baseline", own, rate, published)]
    for name, pair in taken.items():
        ratio = dict(zip(("ratio", "ratio_low", "ratio_high"), ratios(pair["reference"], pair["nlq"]), strict=True))
        found.append({**_row(size, name, ARMS[name], pair["nlq"], rate, published), **ratio})
    return [{**one, "peak_memory_bytes": peaks[one["name"]]} for one in found]


def matmul_flops_per_s(device: str, width: int) -> float:
    """Measured rate of square bfloat16 products: the median of twenty."""
    a, b = (torch.randn(width, width, device=device).bfloat16() for _ in range(2))
    out, times = torch.empty_like(a), []
    for _ in range(23):
        _wait(device)
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        _wait(device)
        times.append(time.perf_counter() - began)
    return 2 * width**3 / spread(times[3:]).median


def device_name(device: str) -> str:
    """A GPU's name; "cpu" for the CPU."""
    return torch.cuda.get_device_name(device) if device != "cpu" else device


def main() -> None:
    """Print the table, or with `--json` its rows."""
    parser = argparse.ArgumentParser(prog="python -m nlq.bench.gpu", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(f"bench-gpu needs a CUDA GPU, and PyTorch {torch.__version__} sees none here: see nlq doctor")
    memory = torch.cuda.get_device_properties("cuda:0").total_memory
    sequences = next(count for count, least in LEAST_MEMORY.items() if memory >= least)
    size = Size("gpt2", 12, 12, 768, 1024, sequences, 50304)
    setting = Setting("cuda:0", min(8, os.cpu_count() or 1), "bf16", Turns(seconds=2.0, limit_s=20.0), {})
    screen = Console(stderr=True, markup=False)
    try:
        found = measure(size, setting, screen.print)
    except NlqError as error:
        sys.exit(f"{error.message}\n  → {error.hint}")
    if options.json:
        json.dump({"device": device_name("cuda:0"), "rows": found}, sys.stdout, indent=2)
    else:
        Console(markup=False).print(table(size, device_name("cuda:0"), found))


def table(size: Size, device: str, found: Sequence[Mapping[str, Any]]) -> Table:
    """The rows for a terminal."""
    made = Table(title=f"GPT-2 small, {size.rows} × {size.context} tokens a step, {device}", title_justify="left")
    made.add_column("system")
    for header in ("tokens/s", "× reference", "MFU measured", "MFU published", "memory"):
        made.add_column(header, justify="right")
    for row in found:
        made.add_row(*_cells(row))
    return made


def _cells(row: Mapping[str, Any]) -> list[str]:
    ratio = f"{row['ratio']:.2f} ({row['ratio_low']:.2f}–{row['ratio_high']:.2f})" if "ratio" in row else "1"
    shares = ["–" if share is None else f"{100 * share:.1f} %" for share in (row["mfu_measured"], row["mfu_published"])]
    return [row["name"], f"{row['tokens_per_s']:,.0f}", ratio, *shares, f"{row['peak_memory_bytes'] / 1e9:.2f} GB"]


def _pair(reference: Child, child: Child, setting: Setting) -> tuple[Taken, int]:
    taken = interleave({"reference": reference.go, "nlq": child.go}, setting.turns)
    child.end()
    return taken, child.peak_memory_bytes


def _row(
    size: Size, name: str, variant: str, seconds: Sequence[float], rate: float, published: float | None
) -> dict[str, Any]:
    """MFU counts attention uncut by the causal mask (Chowdhery et al. 2022, appendix B)."""
    tokens_per_s = size.tokens / spread(seconds).median
    flops_per_s = tokens_per_s * cost(spec_of(size, "bf16", variant).model).flops_per_token
    return {
        "name": name,
        "tokens_per_s": tokens_per_s,
        "mfu_measured": flops_per_s / rate,
        "mfu_published": flops_per_s / published if published else None,
    }


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
