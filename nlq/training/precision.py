"""`train.precision: auto`: which arithmetic updates a shape quicker on this machine, decided once and kept.

The precision is part of a run's key, so a decision outlives changes of the source and measurements of paces.
"""

import hashlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from nlq.core.launch import Slot
from nlq.core.spec import RunSpec
from nlq.models.cost import cost
from nlq.training.device import open_device
from nlq.training.kept import Kept
from nlq.training.pace import WARM_STEPS, in_processes, measured_rows, smaller, update_of

FILE = "precision.json"
ORDINARY, QUICK = "float32", "bf16"
CLEARLY = 0.95
"""The share of an ordinary step's time that a step in bfloat16 may take at most to be chosen."""
MEASURE_S = 1.6
"""How long both are measured together."""


def quicker_precision(spec: RunSpec, cache: Path, slots: list[Slot], announce: Callable[[str], None]) -> str:
    """bf16 where it updates the resolved spec's shape clearly quicker on the slots, otherwise float32.

    Kept in the folder `cache` by shape, device, threads and PyTorch's version. `announce` takes a sentence before
    something is measured. Raises NlqError where a step cannot be measured.
    """
    one = smaller(spec, measured_rows(spec, cost(spec.model)))
    kept, key = Kept(cache / FILE), _key(one, slots[0])
    found = kept.get(key)
    if found in (ORDINARY, QUICK):
        return str(found)
    announce(f"measuring {ORDINARY} against {QUICK} ({spec.model.variant}, width {spec.model.width})")
    ratio = statistics.mean(in_processes(_ratio, one, slots))
    chosen = QUICK if ratio <= CLEARLY else ORDINARY
    kept.put(key, chosen)
    return chosen


def _key(spec: RunSpec, slot: Slot) -> str:
    depends_on = [spec.model.model_dump(), spec.train.batch_tokens, slot.device, slot.threads, torch.__version__]
    return hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:32]


def _ratio(spec: RunSpec, slot: Slot) -> float:
    """Time of a step in bfloat16 over that of an ordinary one, in turn, so that a busy machine slows both."""
    device = open_device(slot.device, slot.threads).torch_device
    updates = [update_of(spec.resolved(train={"precision": name}), device) for name in (QUICK, ORDINARY)]
    for update in updates * WARM_STEPS:
        update()
    ratios: list[float] = []
    began = time.perf_counter()
    while time.perf_counter() - began < MEASURE_S or not ratios:
        quick_s, ordinary_s = (_seconds(update) for update in updates)
        ratios.append(quick_s / ordinary_s)
    return statistics.median(ratios)


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
