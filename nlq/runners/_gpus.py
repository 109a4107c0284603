"""GPUs as a scheduler sees them, and which of them an inherited CUDA_VISIBLE_DEVICES leaves to us."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

PACKED = "#"
"""Stands between a GPU's UUID and a number in the names of slots that share the GPU on purpose."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, or an instance of one in MIG mode.

    `index` is the number that nvidia-smi shows (the order of PCI addresses); `instances` is None outside MIG mode;
    `legacy` is the name that drivers before R470 gave to a MIG instance.
    """

    uuid: str
    name: str
    index: int
    instances: tuple["Gpu", ...] | None = None
    legacy: str = ""
    title: str = ""

    @property
    def places(self) -> tuple["Gpu", ...]:
        """Where runs can train: the GPU itself, or in MIG mode its instances."""
        return (self,) if self.instances is None else self.instances

    def __str__(self) -> str:
        return self.title or f"GPU {self.index}"


@dataclass(frozen=True)
class Use:
    """A process on a GPU and the memory that it holds there; None where the driver does not tell."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True)
class Reading:
    """A GPU's memory now. None where it cannot be read; `fault` says what is wrong with a GPU that does not answer."""

    total_bytes: int | None
    free_bytes: int | None
    processes: tuple[Use, ...] = ()
    fault: str = ""

    def held_by(self, pids: Collection[int]) -> int:
        """Bytes that some processes hold, as far as the driver tells."""
        return sum(use.memory_bytes or 0 for use in self.processes if use.pid in pids)


class Gpus(Protocol):
    """The GPUs of this machine. None of it ever raises: what cannot be found is not there."""

    @property
    def lack(self) -> str:
        """Why there are no GPUs, or nothing."""

    def gpus(self) -> Sequence[Gpu]:
        """All GPUs, in the order of their index, whatever CUDA_VISIBLE_DEVICES says."""

    def read(self, uuid: str) -> Reading:
        """The memory and the processes of a GPU or of a MIG instance."""

    def energy_joules(self, uuid: str) -> float | None:
        """What a GPU has used since its driver was loaded; None where that is not counted, as for a MIG instance."""


def gpu_of(slot: str) -> str | None:
    """The UUID of a slot's GPU or MIG instance, by the slot's name; None for a slot of the CPU."""
    return slot.partition(PACKED)[0] if slot.startswith(("GPU-", "MIG-")) else None


def is_packed(slot: str) -> bool:
    """Whether a slot shares its GPU on purpose (--per-device)."""
    return PACKED in slot


def gigabytes(count_of_bytes: int | None) -> str:
    """Memory for a message; the driver does not always know it."""
    return "some memory" if count_of_bytes is None else f"{count_of_bytes / 1e9:.1f} GB"


def visible(allowed: str | None, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs and MIG instances that a value of CUDA_VISIBLE_DEVICES allows, in its order, as CUDA reads it.

    None (unset) allows all. The first word decides between indices and UUIDs (or their beginnings, if unambiguous).
    A word that names nothing ends the list ("-1" and "" are such words); a GPU that is named twice leaves none at all.
    A number counts GPUs as nvidia-smi does, and a GPU in MIG mode stands for all its instances.
    """
    if allowed is None:
        return [place for gpu in gpus for place in gpu.places]
    words = [word.strip() for word in allowed.split(",")]
    prefix = words[0][:4] if words[0].startswith(("GPU-", "MIG-")) else ""
    found: list[Gpu] = []
    for word in words:
        places = _by_uuid(word, prefix, gpus) if prefix else _by_index(word, gpus)
        if any(place in found for place in places):
            return []
        if not places:
            break
        found += places
    return found


def with_beginning(word: str, gpus: Sequence[Gpu]) -> list[tuple[Gpu, ...]]:
    """The GPUs and MIG instances whose UUID begins so, each with its places."""
    whole = [gpu.places for gpu in gpus if gpu.uuid.startswith(word)]
    instances = [one for gpu in gpus for one in gpu.instances or ()]
    return whole + [(one,) for one in instances if one.uuid.startswith(word) or one.legacy == word]


def _by_index(word: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """CUDA reads numbers as strtoul does: "1gpu" is 1."""
    number = re.match(r"\+?([0-9]+)", word)
    return next((gpu.places for gpu in gpus if number and gpu.index == int(number[1])), ())


def _by_uuid(word: str, prefix: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    matches = with_beginning(word, gpus) if word.startswith(prefix) else []
    return matches[0] if len(matches) == 1 else ()
