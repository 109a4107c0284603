"""Where runs can train on this machine: one slot a CUDA GPU, or slots of CPU threads."""

import os
from collections.abc import Iterator

import pynvml

from nlq.core.errors import NlqError
from nlq.core.launch import Slot


def slots(cpu_slots: int | None) -> list[Slot]:
    """GPU slots where there are GPUs that CUDA_VISIBLE_DEVICES allows, otherwise CPU slots, one a core unless told.

    `cpu_slots` asks for that many CPU slots even where there are GPUs. Raises NlqError when it cannot be.
    """
    gpus = [] if cpu_slots is not None else list(visible_gpus())
    return gpus or _cpu_slots(cores() if cpu_slots is None else cpu_slots)


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> Iterator[Slot]:
    """A slot for each GPU, named by its UUID; an inherited CUDA_VISIBLE_DEVICES chooses and orders them."""
    found = _gpu_uuids()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = found if allowed is None else _chosen(allowed, found)
    threads = max(1, cores() // max(1, len(names)))
    for uuid in names:
        yield Slot(uuid, "cuda:0", threads, {"CUDA_VISIBLE_DEVICES": uuid})


def _cpu_slots(count: int) -> list[Slot]:
    if not 1 <= count <= cores():
        raise NlqError(f"--slots {count}: this machine has {cores()} cores", f"--slots 1 to --slots {cores()}")
    threads = cores() // count
    return [Slot(f"cpu:{index}", "cpu", threads, {"CUDA_VISIBLE_DEVICES": ""}) for index in range(count)]


def _chosen(allowed: str, found: list[str]) -> list[str]:
    """Indices and UUIDs (or their beginnings) as CUDA reads them: the first that does not exist ends the list."""
    names: list[str] = []
    for word in filter(None, (part.strip() for part in allowed.split(","))):
        matches = [found[int(word)]] if word.isdigit() and int(word) < len(found) else []
        matches = matches or [uuid for uuid in found if uuid.startswith(word) and not word.isdigit()]
        if not matches:
            break
        names.append(matches[0])
    return names


def _gpu_uuids() -> list[str]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
