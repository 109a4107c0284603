"""The device that a run trains on, and the arithmetic that it trains in."""

import ctypes
import os
import platform
from contextlib import suppress
from typing import NamedTuple

import torch

from nlq.core.errors import NlqError
from nlq.core.launch import TOGETHER, VISIBLE
from nlq.core.peaks import SEVERAL
from nlq.core.spec import RunSpec

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's mallopt (mallopt(3))."""


class Device(NamedTuple):
    """A place to compute: "cpu" or one CUDA device, with its name as a person knows it and a GPU's UUID."""

    torch_device: torch.device
    name: str
    uuid: str | None = None


def open_device(name: str, threads: int) -> Device:
    """Take a device ("cpu", "cuda:0"). On the CPU the same spec then gives the same bits at the same thread count.

    Raises NlqError when there is no such device.
    """
    torch.set_num_threads(threads)
    if name == "cpu":
        keep_freed_memory()
        torch.use_deterministic_algorithms(True)
        # a pass over every new tensor, none of which is read before it is written
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        return Device(torch.device("cpu"), _processor_name())
    if not torch.cuda.is_available():
        raise NlqError(
            f'no device "{name}": PyTorch {torch.__version__} sees no CUDA GPU here', "what was found: nlq doctor"
        )
    return Device(torch.device(name), torch.cuda.get_device_properties(name).name, _uuid_of(name))


def keep_freed_memory() -> None:
    """Let this process keep what it frees, where glibc allocates.

    Otherwise every large tensor is handed back to the system, and the next step waits for the same pages again.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)


def return_freed_memory() -> None:
    """Hand back what this process has freed so far, where glibc allocates."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def of_rank(name: str, rank: int) -> str:
    """The device of one rank of a run whose first has the device `name`: the CPU for all, or one GPU after another."""
    return name if name == "cpu" else f"cuda:{torch.device(name).index + rank}"


def in_words(name: str, opened: Device, count: int) -> Device:
    """All `count` devices of a run as one that can be recorded: the UUIDs joined as the names of slots are."""
    if count == 1:
        return opened
    uuids = [_uuid_of(of_rank(name, rank)) for rank in range(count)] if opened.uuid else []
    return Device(opened.torch_device, f"{count}{SEVERAL}{opened.name}", TOGETHER.join(uuids) or None)


def parameter_dtype(spec: RunSpec) -> torch.dtype:
    """The type that weights and optimiser state are kept in."""
    return torch.float64 if spec.train.precision == "float64" else torch.float32


def _uuid_of(name: str) -> str:
    return _uuid(str(torch.cuda.get_device_properties(name).uuid), os.environ.get(VISIBLE, ""))


def _uuid(found: str, visible: str) -> str:
    """The UUID that CUDA gave this process, as NVML writes it.

    CUDA gives sixteen bytes without a word before them. In a MIG instance they are the instance's own, which only the
    names that the process was given can tell from a GPU's, or (older versions) those of the whole GPU.
    """
    return f"MIG-{found}" if f"MIG-{found}" in visible.replace(" ", "").split(",") else f"GPU-{found}"


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - a kernel file, where there is one
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
