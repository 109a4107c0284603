"""Where runs can train on this machine: slots of GPUs, or slots of CPU threads."""

import os
from collections.abc import Sequence

from nlq.core.errors import NlqError
from nlq.core.launch import Slot
from nlq.runners import _nvml
from nlq.runners._gpus import PACKED, Gpu, Gpus, gpu_of, visible, with_beginning

NO_GPU = "none"
"""The value of --gpus that asks for the CPU."""


def slots(cpu_slots: int | None = None, gpus: str | None = None, per_device: int | None = None) -> list[Slot]:
    """GPU slots where there are GPUs that CUDA_VISIBLE_DEVICES allows, otherwise CPU slots, one a core unless told.

    `cpu_slots` asks for that many CPU slots even where there are GPUs. `gpus` chooses among the GPUs: numbers as
    nvidia-smi shows them, or beginnings of UUIDs, with commas between; or "none". `per_device` is how many runs may
    share a GPU. Raises NlqError when there is no such GPU, when it is hidden, or when the three contradict each other.
    """
    _check_options(cpu_slots, gpus, per_device)
    if cpu_slots is not None or gpus == NO_GPU:
        return _cpu_slots(cores() if cpu_slots is None else cpu_slots)
    machine: Gpus = _nvml.machine()
    places = _allowed(machine.gpus()) if gpus is None else _chosen(gpus, machine)
    if per_device is not None and not places:
        raise NlqError(
            f"--per-device {per_device}: no GPU here{_because(machine)}", "--slots N for the CPU; nlq doctor"
        )
    return _gpu_slots(places, per_device or 1) if places else _cpu_slots(cores())


def device_count(slots: Sequence[Slot]) -> int:
    """How many devices a run can have at most: slots that share a GPU are one."""
    if any(slot.name.startswith("MIG-") for slot in slots):
        return 1  # CUDA shows a process one MIG instance and no more
    return len({gpu_of(slot.name) or slot.name for slot in slots})


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_options(cpu_slots: int | None, gpus: str | None, per_device: int | None) -> None:
    if per_device is not None and per_device < 1:
        raise NlqError(f"--per-device {per_device}: how many runs share a GPU, from 1 on", "--per-device 2")
    if cpu_slots is not None and gpus not in (None, NO_GPU):
        share = f"--gpus {gpus} --per-device {max(1, cpu_slots)}"
        raise NlqError(
            f"--slots {cpu_slots} asks for the CPU, --gpus {gpus} for GPUs", f"{share}; or --slots {cpu_slots} alone"
        )
    if per_device is not None and (cpu_slots is not None or gpus == NO_GPU):
        other = f"--slots {cpu_slots}" if cpu_slots is not None else f"--gpus {NO_GPU}"
        raise NlqError(
            f"{other} asks for the CPU, --per-device {per_device} for GPUs", f"--slots N; or --per-device {per_device}"
        )


def _gpu_slots(places: Sequence[Gpu], per_device: int) -> list[Slot]:
    """The first slot of every GPU comes before any second one, so that runs spread before they share.

    Children see their GPU by its UUID, which no order of devices can change.
    """
    threads = max(1, cores() // (len(places) * per_device))
    numbers = range(1, per_device + 1)
    return [
        Slot(f"{gpu.uuid}{PACKED}{number}" if per_device > 1 else gpu.uuid, "cuda:0", threads, _environment(gpu.uuid))
        for number in numbers
        for gpu in places
    ]


def _environment(uuid: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _cpu_slots(count: int) -> list[Slot]:
    if not 1 <= count <= cores():
        raise NlqError(f"--slots {count}: this machine has {cores()} cores", f"--slots 1 to --slots {cores()}")
    threads = cores() // count
    return [Slot(f"cpu:{index}", "cpu", threads, {"CUDA_VISIBLE_DEVICES": ""}) for index in range(count)]


def _allowed(gpus: Sequence[Gpu]) -> list[Gpu]:
    return visible(os.environ.get("CUDA_VISIBLE_DEVICES"), gpus)


def _chosen(text: str, machine: Gpus) -> list[Gpu]:
    gpus = machine.gpus()
    if not gpus:
        raise NlqError(f"--gpus {text}: no GPU here{_because(machine)}", f"--gpus {NO_GPU} for the CPU; nlq doctor")
    chosen: list[Gpu] = []
    for word in (part.strip() for part in text.split(",")):
        places = _left_of(word, _named(word, gpus), gpus)
        if any(place in chosen for place in places):
            hint = "each GPU once; to let runs share a GPU: --per-device 2"
            raise NlqError(f'--gpus {text}: "{word}" is named twice', hint)
        chosen += places
    return chosen


def _named(word: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The GPU or MIG instance that a word of --gpus names."""
    is_number = word.isdecimal()
    matches = [gpu.places for gpu in gpus if gpu.index == int(word)] if is_number else []
    if word and not is_number:
        matches = with_beginning(word, gpus)
    if len(matches) == 1 and matches[0]:
        return matches[0]
    if len(matches) == 1:
        raise NlqError(
            f"--gpus {word}: this GPU is in MIG mode and has no instances", "nvidia-smi mig -cgi; nlq doctor"
        )
    wrong = f"--gpus {word}: {'several GPUs begin so' if matches else 'no such GPU here'}"
    raise NlqError(wrong, f"here: {'; '.join(_lines(gpus))}")


def _left_of(word: str, places: Sequence[Gpu], gpus: Sequence[Gpu]) -> list[Gpu]:
    """What CUDA_VISIBLE_DEVICES leaves of it."""
    allowed = _allowed(gpus)
    left = [place for place in places if place in allowed]
    if left:
        return left
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    indices = ",".join(str(index) for index in dict.fromkeys(gpu.index for gpu in allowed))
    hint = f"--gpus {indices}; or unset CUDA_VISIBLE_DEVICES" if indices else "unset CUDA_VISIBLE_DEVICES"
    raise NlqError(f"--gpus {word}: hidden by CUDA_VISIBLE_DEVICES={value}", hint)


def _lines(gpus: Sequence[Gpu]) -> list[str]:
    """One line a GPU or MIG instance, with what to type for it."""
    split = [one for gpu in gpus for one in gpu.instances or ()]
    return [f"--gpus {gpu.index}  {gpu.name} {gpu.uuid}" for gpu in gpus] + [f"--gpus {one.uuid}" for one in split]


def _because(machine: Gpus) -> str:
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = f"CUDA_VISIBLE_DEVICES={value!r} hides all" if value is not None and machine.gpus() else machine.lack
    return f" ({hidden})" if hidden else ""
