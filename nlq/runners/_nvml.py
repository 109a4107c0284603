"""The machine's GPUs through NVML, the library of NVIDIA's driver. Without a driver there are none, and no error."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pynvml

from nlq.runners._gpus import Gpu, Reading, Use


class Nvml:
    """The driver's view; `lack` says why there are no GPUs. NVML stays open for the life of the process."""

    def __init__(self) -> None:
        self.lack = ""
        self._handles: dict[str, Any] = {}
        try:
            pynvml.nvmlInit()
        except (pynvml.NVMLError, OSError) as error:
            self.lack = f"no NVIDIA driver: {error}"

    def gpus(self) -> list[Gpu]:
        """All GPUs that answer. NVML numbers them by PCI address, whatever CUDA_DEVICE_ORDER says."""
        if self.lack:
            return []
        count = _ask(pynvml.nvmlDeviceGetCount) or 0
        found = (self._gpu(index) for index in range(count))
        return [gpu for gpu in found if gpu is not None]

    def read(self, uuid: str) -> Reading:
        """Memory and processes now. A MIG instance has its own memory and its own processes."""
        handle = self._handles.get(uuid)
        if handle is None:
            return Reading(None, None, fault="it is gone")
        try:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        except pynvml.NVMLError_NotSupported:  # memory that is shared with the CPU is not counted
            return Reading(None, None, _processes(handle))
        except pynvml.NVMLError as error:
            return Reading(None, None, fault=str(error))
        return Reading(int(memory.total), int(memory.free), _processes(handle))

    def energy_joules(self, uuid: str) -> float | None:
        """The energy of a GPU since its driver was loaded, which counts millijoules, or None."""
        millijoules = _ask(pynvml.nvmlDeviceGetTotalEnergyConsumption, self._handles.get(uuid))
        return None if millijoules is None else millijoules / 1000

    def _gpu(self, index: int) -> Gpu | None:
        handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = _ask(pynvml.nvmlDeviceGetUUID, handle)
        if handle is None or uuid is None:  # a GPU that has fallen off the bus, or that we may not see
            return None
        self._handles[uuid] = handle
        name = str(_ask(pynvml.nvmlDeviceGetName, handle) or "GPU")
        is_split = (_ask(pynvml.nvmlDeviceGetMigMode, handle) or [0])[0] == pynvml.NVML_DEVICE_MIG_ENABLE
        return Gpu(str(uuid), name, index, tuple(self._instances(handle, uuid, index)) if is_split else None)

    def _instances(self, gpu: Any, gpu_uuid: str, index: int) -> Iterator[Gpu]:
        for place in range(_ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0):
            handle = _ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, place)
            uuid = _ask(pynvml.nvmlDeviceGetUUID, handle)
            if handle is None or uuid is None:  # places need not be filled
                continue
            self._handles[uuid] = handle
            ids = (
                _ask(ask, handle) for ask in (pynvml.nvmlDeviceGetGpuInstanceId, pynvml.nvmlDeviceGetComputeInstanceId)
            )
            legacy = "/".join([f"MIG-{gpu_uuid}", *map(str, ids)])
            name = str(_ask(pynvml.nvmlDeviceGetName, handle) or "MIG instance")
            yield Gpu(str(uuid), name, index, legacy=legacy, title=f"GPU {index}, MIG {place}")


@cache
def machine() -> Nvml:
    """The GPUs of this machine; NVML is opened once."""
    return Nvml()


def _processes(handle: Any) -> tuple[Use, ...]:
    """Those that compute and those that draw. In a container the driver may hide them."""
    lists = (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses)
    found = {int(one.pid): one.usedGpuMemory for ask in reversed(lists) for one in _ask(ask, handle) or ()}
    return tuple(Use(pid, memory) for pid, memory in found.items())


def _ask(question: Callable[..., Any], *what: Any) -> Any:
    """NVML's answer, or None where it has none (also to a question about nothing)."""
    try:
        return None if None in what else question(*what)
    except pynvml.NVMLError:
        return None
