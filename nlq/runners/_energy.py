"""What the devices of a run have used, in joules, from one moment to another."""

from collections.abc import Sequence

from nlq.runners import _nvml
from nlq.runners._gpus import Gpus, is_packed


class Meter:
    """Reads the counters of some GPUs, by UUID, from when it is made. `slot` names the slots that the run has.

    There is no number for a CPU, a MIG instance, a GPU that does not count, or one that the run shares on purpose:
    the counter is the whole GPU's.
    """

    def __init__(self, uuids: Sequence[str], slot: str) -> None:
        self._uuids = [] if is_packed(slot) else list(uuids)
        self._began = self._joules()

    def joules(self) -> float | None:
        """The energy of all the GPUs together since then, or None where it is not known of every one."""
        now = self._joules()
        if now is None or self._began is None or now < self._began:  # a driver that was loaded anew counts from 0
            return None
        return now - self._began

    def _joules(self) -> float | None:
        if not self._uuids:
            return None
        gpus: Gpus = _nvml.machine()
        gpus.gpus()  # opens those that are there
        found = [gpus.energy_joules(uuid) for uuid in self._uuids]
        known = [joules for joules in found if joules is not None]
        return sum(known) if len(known) == len(found) else None
