"""The guard of a scheduler's slots: of GPUs by NVML and the database, of the CPU none."""

from collections.abc import Callable

from nlq.core.launch import Gate, Process, Slot
from nlq.runners import _nvml
from nlq.runners._gpus import gpu_of
from nlq.runners._packing import Packing, Unguarded
from nlq.store.devices import DeviceLedger
from nlq.store.queue import Queue


def gate_of(slots: list[Slot], queue: Queue, sweep: str | None, scheduler: Process, say: Callable[[str], None]) -> Gate:
    """What guards `slots` for a scheduler of a sweep (of all when None); remarks go to `say`."""
    if not any(gpu_of(slot.name) for slot in slots):
        return Unguarded()
    return Packing(_nvml.machine(), DeviceLedger(queue, sweep, scheduler), say)
