"""How a run becomes a process: the contract between the scheduler and every runner."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class Process:
    """A process that can be told from a later one of the same number: when it started, and in which boot."""

    host: str
    boot_id: str
    pid: int
    started: str


VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable by which CUDA is told which devices it may show."""


@dataclass(frozen=True)
class Slot:
    """A place where one run can train: a device, its CPU threads, and the environment that shows it to the child."""

    name: str
    device: str
    threads: int
    environment: Mapping[str, str] = field(default_factory=dict)


TOGETHER = "+"
"""Stands between the names of slots that one run has together."""


def slot_names(joined: str) -> list[str]:
    """The slots that a run has, from the name of its own."""
    return joined.split(TOGETHER)


def join_slots(slots: Sequence[Slot]) -> Slot:
    """Several slots as one, for a run of several devices: all visible, in this order, and the threads of all."""
    first, *others = slots
    if not others:
        return first
    visible = [slot.environment.get(VISIBLE, "") for slot in slots]
    environment = {**first.environment, VISIBLE: ",".join(filter(None, visible))}
    return Slot(TOGETHER.join(slot.name for slot in slots), first.device, sum(s.threads for s in slots), environment)


@dataclass(frozen=True)
class Launch:
    """What to start: the arguments of `nlq.worker`, where its output goes, and its slot."""

    arguments: tuple[str, ...]
    log_path: Path
    slot: Slot


class Handle(Protocol):
    """A started run."""

    @property
    def process(self) -> Process:
        """The process that trains it."""

    def poll(self) -> int | None:
        """The exit code, or None while it runs; a signal's number is negative."""

    def ask_to_stop(self) -> None:
        """Ask for a checkpoint and an end, once however often it is called. Harmless when it has ended."""

    def stop(self, grace_s: float) -> None:
        """End the whole process group: ask, wait `grace_s` seconds, then kill. Harmless when it has ended."""


class Runner(Protocol):
    """A way to start runs. Every file of `nlq/runners/` offers `make(entry) -> Runner`, `entry` being the worker."""

    def warm(self) -> bool:
        """Get ready to start runs, without waiting for it; whether a start is quick now.

        True also where getting ready has failed: `start` says why.
        """

    def start(self, launch: Launch) -> Handle:
        """Start a run; output goes to the launch's log. Raises OSError when that is impossible."""

    def adopt(self, process: Process) -> Handle:
        """Watch a run that another scheduler of this machine started."""


class DeviceReport(NamedTuple):
    """What the process of an attempt said about one of its devices. `noted` when there is an event of a mismatch."""

    attempt: int
    slot: str
    device_uuid: str
    noted: bool


class Gate(Protocol):
    """Says which slots may take a run now, and whether the processes are where they belong."""

    def free(self, slots: Sequence[Slot], busy: Mapping[str, int]) -> Iterable[Slot]:
        """Slots that may take a run, one after the other: each must be taken before the next is asked for.

        `busy` are the scheduler's own slots that train, with the numbers of their processes.
        """

    def misplaced(self, own: Collection[int]) -> Iterable[tuple[int, str]]:
        """Of the scheduler's own attempts, those that share a device with another unasked, each with what is wrong."""
