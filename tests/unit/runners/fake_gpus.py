"""GPUs that are not there: what a driver would tell, under the control of a test."""

from collections import defaultdict

from nlq.runners._gpus import Gpu, Reading, Use

GB = 10**9


def uuid_of(index: int, word: str = "GPU") -> str:
    """A UUID as NVML writes it; the first digits tell the index."""
    return f"{word}-{index:02x}000000-0000-4000-8000-00000000000{index}"


class FakeGpus:
    """Some GPUs of one size. `hold` and `release` are what processes do; memory may come back late."""

    def __init__(self, count: int = 4, total_gb: float = 80, lack: str = "") -> None:
        self.lack, self.total_bytes = lack, int(total_gb * GB)
        self.found = [Gpu(uuid_of(i), "NVIDIA Fake", i) for i in range(count)]
        self.used: dict[str, dict[int, int]] = defaultdict(dict)
        self.lingering: dict[str, int] = defaultdict(int)
        self.hides_processes = False
        self.faults: dict[str, str] = {}
        self.memory_is_readable = True

    def split(self, index: int, instances: int) -> None:
        """Put a GPU into MIG mode."""
        gpu = self.found[index]
        parts = tuple(
            Gpu(uuid_of(16 * (index + 1) + i, "MIG"), "NVIDIA Fake MIG", index, legacy=f"MIG-{gpu.uuid}/{i + 1}/0")
            for i in range(instances)
        )
        self.found[index] = Gpu(gpu.uuid, gpu.name, index, parts)

    def hold(self, index: int, pid: int, gigabytes: float) -> None:
        """A process holds so much of a GPU."""
        self.used[uuid_of(index)][pid] = int(gigabytes * GB)

    def release(self, index: int, pid: int, *, late: bool = False) -> None:
        """A process ends; `late` leaves its memory held by nobody until `settle`."""
        held = self.used[uuid_of(index)].pop(pid, 0)
        self.lingering[uuid_of(index)] += held if late else 0

    def settle(self) -> None:
        """All memory of processes that have ended comes back."""
        self.lingering.clear()

    def gpus(self) -> list[Gpu]:
        return self.found

    def read(self, uuid: str) -> Reading:
        if uuid in self.faults:
            return Reading(None, None, fault=self.faults[uuid])
        uses = self.used[uuid]
        processes = () if self.hides_processes else tuple(Use(pid, held) for pid, held in uses.items())
        if not self.memory_is_readable:
            return Reading(None, None, processes)
        return Reading(self.total_bytes, self.total_bytes - sum(uses.values()) - self.lingering[uuid], processes)

    def energy_joules(self, uuid: str) -> float | None:
        return None


class FakeLedger:
    """A database's knowledge, set by a test."""

    def __init__(self) -> None:
        self.others: dict[str, int] = {}
        self.peak_bytes: int | None = None
        self.reports: list = []
        self.notes: list[tuple[int, str]] = []

    def taken(self) -> dict[str, int]:
        return self.others

    def largest_peak_bytes(self) -> int | None:
        return self.peak_bytes

    def reported(self) -> list:
        return self.reports

    def note_mismatch(self, attempt: int, message: str) -> None:
        self.notes.append((attempt, message))


class Clock:
    """Time that passes when a test says so, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
