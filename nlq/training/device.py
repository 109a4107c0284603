"""The device that a run trains on, and the arithmetic that it trains in."""

import os
import platform
from typing import NamedTuple

import torch

from nlq.core.errors import NlqError
from nlq.core.spec import RunSpec


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
        torch.use_deterministic_algorithms(True)
        return Device(torch.device("cpu"), _processor_name())
    if not torch.cuda.is_available():
        raise NlqError(
            f'no device "{name}": PyTorch {torch.__version__} sees no CUDA GPU here', "what was found: nlq doctor"
        )
    found = torch.cuda.get_device_properties(name)
    return Device(torch.device(name), found.name, _uuid(str(found.uuid), os.environ.get("CUDA_VISIBLE_DEVICES", "")))


def parameter_dtype(spec: RunSpec) -> torch.dtype:
    """The type that weights and optimiser state are kept in."""
    return torch.float64 if spec.train.precision == "float64" else torch.float32


def _uuid(found: str, visible: str) -> str:
    """The UUID that CUDA gave this process, as NVML writes it.

    CUDA gives sixteen bytes without a word before them. In a MIG instance they are the instance's own, which only the
    name that the process was given can tell from a GPU's, or (older versions) those of the whole GPU.
    """
    return f"MIG-{found}" if visible.strip() == f"MIG-{found}" else f"GPU-{found}"


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - a kernel file, where there is one
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
