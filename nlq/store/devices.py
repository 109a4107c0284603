"""What the database knows about a machine's devices: which slots are taken, what runs needed, what processes found."""

from dataclasses import dataclass
from typing import Any

from nlq.core.launch import DeviceReport, Process, slot_names
from nlq.store.queue import Queue

MISMATCH = "device mismatch"
_OPEN_HERE = "ended IS NULL AND slot IS NOT NULL AND host = ? AND boot_id = ?"


@dataclass(frozen=True)
class DeviceLedger:
    """The attempts of the machine and boot that `scheduler` runs in; `sweep` None means all sweeps."""

    queue: Queue
    sweep: str | None
    scheduler: Process

    def taken(self) -> dict[str, int]:
        """Slots of all attempts that have not ended, of every scheduler, with the numbers of their processes (or 0)."""
        sql = f"SELECT slot, coalesce(pid, 0) FROM attempts WHERE {_OPEN_HERE}"
        rows = self.queue.db.execute(sql, self._here()).fetchall()
        return {name: pid for slot, pid in rows for name in slot_names(slot)}

    def largest_peak_bytes(self) -> int | None:
        """The most GPU memory that a run of the sweep has needed, or None while none has been measured."""
        sql, values = "SELECT MAX(peak_memory_bytes) FROM attempts WHERE device_uuid IS NOT NULL", []
        if self.sweep is not None:
            sql += " AND run IN (SELECT run FROM sweeps JOIN sweep_runs USING (sweep) WHERE name = ?)"
            values = [self.sweep]
        largest: int | None = self.queue.db.execute(sql, values).fetchone()[0]
        return largest

    def reported(self) -> list[DeviceReport]:
        """The devices that running attempts have found, in the order of their start; one row a device."""
        sql = (
            "SELECT attempt, slot, device_uuid, EXISTS (SELECT 1 FROM events WHERE events.run = attempts.run"
            f" AND events.attempt = attempts.attempt AND kind = '{MISMATCH}') FROM attempts"
            f" WHERE {_OPEN_HERE} AND device_uuid IS NOT NULL ORDER BY attempt"
        )
        rows = self.queue.db.execute(sql, self._here()).fetchall()
        return [
            DeviceReport(attempt, one, found, bool(noted))
            for attempt, slot, uuid, noted in rows
            for one, found in zip(slot_names(slot), slot_names(uuid), strict=False)
        ]

    def note_mismatch(self, attempt: int, message: str) -> None:
        """Add the event to the run of an attempt."""
        self.queue.note(attempt, MISMATCH, message)

    def _here(self) -> list[Any]:
        return [self.scheduler.host, self.scheduler.boot_id]
