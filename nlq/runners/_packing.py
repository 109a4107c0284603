"""Which GPU slots may take a run: one run a GPU unless asked, and more only where their measured memory fits."""

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nlq.core.launch import DeviceReport, Slot
from nlq.runners._gpus import Gpu, Gpus, Reading, gigabytes, gpu_of, is_packed
from nlq.runners._locks import SlotLocks

CONTEXT_BYTES = 600 * 2**20
"""What CUDA and its libraries take beside the tensors that PyTorch counts: 0.3 to 0.6 GB on recent GPUs."""
UNMEASURED_SHARE = 0.5
"""Until a run has been measured, a GPU is taken when this share of its memory is free."""
EMPTY_SHARE = 0.9
"""A GPU with this share free is empty: a run may try it, however much others have needed elsewhere."""
TOLERANCE_BYTES = 64 * 2**20
PATIENCE_S = 30.0
ELSEWHERE_S = 2.0
CHECK_S = 1.0
UNKNOWN = 0
"""Stands for the number of a process that is not known."""


class Ledger(Protocol):
    """What the database knows about this machine's devices."""

    def taken(self) -> Mapping[str, int]:
        """Slots of all attempts that have not ended, of every scheduler, with the numbers of their processes (or 0)."""

    def largest_peak_bytes(self) -> int | None:
        """The largest GPU memory that a run of this kind has needed, or None while none has been measured."""

    def reported(self) -> Sequence[DeviceReport]:
        """The devices that running attempts have found, in the order of their start."""

    def note_mismatch(self, attempt: int, message: str) -> None:
        """Add an event "device mismatch" to the run of an attempt."""


class Unguarded:
    """Every slot that is not busy is free: right for the CPU."""

    def free(self, slots: Sequence[Slot], busy: Mapping[str, int]) -> Iterable[Slot]:
        """Slots that train nothing."""
        return [slot for slot in slots if slot.name not in busy]

    def misplaced(self, own: Collection[int]) -> Iterable[tuple[int, str]]:  # noqa: ARG002
        """None."""
        return ()


class _Wait(NamedTuple):
    """Why a slot takes no run now. `why` is empty where the user expects it; `patience_s` goes by before it is said."""

    kind: str
    why: str = ""
    patience_s: float = 0.0


@dataclass
class _Watch:
    """What is remembered of one GPU: processes of runs that ended there (0: unknown), and what it waits for.

    `before_bytes` is what was held, other people's processes apart, when the GPU was given a run while it had none.
    """

    gpu: Gpu
    ended: set[int] = field(default_factory=set)
    before_bytes: int | None = None
    waits_for: str = ""
    since: float = 0.0
    told: str = ""


class Packing:
    """Guards the slots of GPUs. Messages go to `say`, one line each, once for each time that a GPU is waited for."""

    def __init__(
        self,
        machine: Gpus,
        ledger: Ledger,
        say: Callable[[str], None],
        locks: SlotLocks | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.machine, self.ledger, self.say, self.clock = machine, ledger, say, clock
        self.locks = locks or SlotLocks()
        places = {place.uuid: (place, gpu) for gpu in machine.gpus() for place in gpu.places}
        self._watched = {uuid: _Watch(place) for uuid, (place, _) in places.items()}
        self._parents = {uuid: gpu.uuid for uuid, (_, gpu) in places.items()}
        self._busy: dict[str, int] = {}
        self._checked_at = -math.inf

    def free(self, slots: Sequence[Slot], busy: Mapping[str, int]) -> Iterator[Slot]:
        """Slots that may take a run now; each counts as taken as soon as it has been given."""
        self._see_ends(busy)
        self.locks.keep(busy)
        for name in filter(gpu_of, busy):  # adopted runs are locked from now on
            self.locks.take(name)
        if not slots:
            return
        taken = {**self.ledger.taken(), **busy}
        largest = self.ledger.largest_peak_bytes()
        for slot in slots:
            if slot.name in busy or not self._is_ready(slot.name, taken, largest):
                continue
            taken[slot.name] = self._busy[slot.name] = UNKNOWN
            try:
                yield slot
            except GeneratorExit:  # no run was left for it
                del self._busy[slot.name]
                self.locks.drop(slot.name)
                raise

    def misplaced(self, own: Collection[int]) -> Iterator[tuple[int, str]]:
        """Looks once a second. A process that is elsewhere than its slot is an event; sharing unasked is a fault.

        Of several on one GPU, those stay whose slot it is, or else the first.
        """
        if not own or self.clock() - self._checked_at < CHECK_S:
            return
        self._checked_at = self.clock()
        by_device: dict[str, list[DeviceReport]] = {}
        for one in self.ledger.reported():
            device = self._device(one)
            by_device.setdefault(device, []).append(one)
            if device != gpu_of(one.slot) and not one.noted and one.attempt in own:
                self.ledger.note_mismatch(one.attempt, f"slot {one.slot}, but the process is on {device}")
        for device, sharing in by_device.items():
            for one in _intruders(device, sharing):
                if one.attempt in own:
                    others = ", ".join(str(other.attempt) for other in sharing if other is not one)
                    yield one.attempt, f"it was on {device}, where attempt {others} trains too; its slot was {one.slot}"

    def _device(self, one: DeviceReport) -> str:
        """The device that a process found, under the name that its slot uses where both mean the same.

        A process in a MIG instance may be told the instance's UUID or, in older versions, that of the whole GPU.
        """
        place = gpu_of(one.slot) or ""
        same = {_digits(place), _digits(self._parents.get(place, place))}
        return place if _digits(one.device_uuid) in same else one.device_uuid

    def _see_ends(self, busy: Mapping[str, int]) -> None:
        """A run that began and ended between two looks counts too."""
        for name, pid in self._busy.items():
            watch = self._watched.get(gpu_of(name) or "")
            if watch and name not in busy and pid != os.getpid():
                watch.ended.add(pid)
        self._busy = dict(busy)

    def _is_ready(self, name: str, taken: Mapping[str, int], largest: int | None) -> bool:
        """Says why not where that is news."""
        uuid = gpu_of(name)
        if uuid is None:
            return True
        watch = self._watched.setdefault(uuid, _Watch(Gpu(uuid, "GPU", 0, title=uuid)))
        beside = {slot: pid for slot, pid in taken.items() if gpu_of(slot) == uuid}
        wait = self._neighbours(watch, name, beside, largest)
        if wait is None:
            wait = self._memory(watch, self.machine.read(uuid), beside, largest)
        if wait is not None:
            self.locks.drop(name)
        self._tell(watch, wait)
        return wait is None

    def _neighbours(self, watch: _Watch, name: str, beside: Mapping[str, int], largest: int | None) -> _Wait | None:
        """Whether the slot may be ours at all; if so it is locked."""
        elsewhere = _Wait("elsewhere", f"{watch.gpu} is used by another nlq; waiting for it", ELSEWHERE_S)
        if name in beside:
            return elsewhere
        if beside and not (is_packed(name) and all(map(is_packed, beside))):
            return _Wait("alone") if beside.keys() <= self._busy.keys() else elsewhere
        if beside and largest is None:
            return _Wait("unmeasured")
        return None if self.locks.take(name) else elsewhere

    def _memory(self, watch: _Watch, now: Reading, beside: Mapping[str, int], largest: int | None) -> _Wait | None:
        """What keeps a GPU from a run, or None: then what it holds before the run is remembered."""
        if now.fault:
            return _Wait("fault", f"{watch.gpu} does not answer ({now.fault}); it is left alone")
        if now.free_bytes is None or now.total_bytes is None:
            return _unreadable(watch, now, beside)
        own = {os.getpid()}
        others = now.held_by({use.pid for use in now.processes} - own - set(beside.values()) - watch.ended)
        used = now.total_bytes - now.free_bytes - now.held_by(own)
        wait = self._memory_of_ended(watch, now, used - others, alone=not beside)
        if wait is None:
            room = now.total_bytes - max(used, others + len(beside) * _need(largest or 0))
            wait = _too_little(watch, now, room, largest, beside)
        if wait is None:
            watch.ended.clear()
            watch.before_bytes = watch.before_bytes if beside else used - others
        return wait

    def _memory_of_ended(self, watch: _Watch, now: Reading, held_bytes: int, *, alone: bool) -> _Wait | None:
        """The last run's memory is back when its process has left the GPU and no more is held than before it began.

        Where only the second is missing after all patience, somebody holds it whom we cannot see (the driver hides
        processes from containers): then what is free decides.
        """
        if not watch.ended:
            return None
        still = watch.ended & {use.pid for use in now.processes}
        rest = held_bytes - watch.before_bytes if alone and watch.before_bytes is not None else 0
        waited = self.clock() - watch.since if watch.waits_for == "memory" else 0.0
        if not still and (rest <= TOLERANCE_BYTES or waited >= PATIENCE_S):
            return None
        amount = f"{gigabytes(rest)} of memory" if rest > 0 else "memory"
        who = f"process {min(still)}, which has ended," if still else "the run that ended there"
        why = f"{watch.gpu} waits: {amount} of {who} did not come back within {PATIENCE_S:g} s; look at nvidia-smi"
        return _Wait("memory", why, PATIENCE_S)

    def _tell(self, watch: _Watch, wait: _Wait | None) -> None:
        """Each reason once while it lasts; another nlq once and for all, since two may take turns."""
        if wait is None:
            if watch.told not in ("", "elsewhere"):
                self.say(f"{watch.gpu} is free again")
                watch.told = ""
            watch.waits_for = ""
            return
        if wait.kind != watch.waits_for:
            watch.waits_for, watch.since = wait.kind, self.clock()
        if wait.why and wait.kind != watch.told and self.clock() - watch.since >= wait.patience_s:
            watch.told = wait.kind
            self.say(wait.why)


def _intruders(device: str, sharing: Sequence[DeviceReport]) -> Sequence[DeviceReport]:
    """Those of one device that have no right to it."""
    owners = [one for one in sharing if gpu_of(one.slot) == device]
    if not all(is_packed(one.slot) for one in owners):
        owners = owners[:1]
    stay = owners or sharing[:1]
    return [one for one in sharing if one not in stay]


def _too_little(watch: _Watch, now: Reading, room: int, largest: int | None, beside: Collection[str]) -> _Wait | None:
    """More runs beside others of ours wait silently; a GPU that other people fill is left alone, and that is said."""
    total = now.total_bytes or 0
    need = UNMEASURED_SHARE * total if largest is None else _need(largest)
    if room >= (need if beside else min(need, EMPTY_SHARE * total)):
        return None
    if beside:
        return _Wait("packed")
    largest_first = sorted(now.processes, key=lambda use: -(use.memory_bytes or 0))
    who = "".join(f", process {use.pid} holds {gigabytes(use.memory_bytes)}" for use in largest_first[:3])
    asks = f"a run needs {gigabytes(int(need))}" if largest is not None else f"at first {gigabytes(int(need))} must be"
    return _Wait("others", f"{watch.gpu} is left alone until others free it: {gigabytes(room)} is free{who}; {asks}")


def _unreadable(watch: _Watch, now: Reading, beside: Collection[str]) -> _Wait | None:
    if beside:
        return _Wait("unreadable", f"{watch.gpu}: its memory cannot be read, so runs do not share it")
    if watch.ended & {use.pid for use in now.processes}:
        return _Wait("memory")
    watch.ended.clear()
    return None


def _need(peak_bytes: int) -> int:
    return peak_bytes + CONTEXT_BYTES


def _digits(uuid: str) -> str:
    """A UUID without "GPU-" or "MIG-": CUDA gives sixteen bytes, and NVML puts a word before them."""
    return uuid.partition("-")[2] if uuid.startswith(("GPU-", "MIG-")) else uuid
