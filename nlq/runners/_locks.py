"""One owner for a GPU slot among all schedulers of a machine, whatever database they work on."""

import fcntl
import os
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from nlq.runners._gpus import gpu_of, is_packed


class SlotLocks:
    """File locks, which the kernel gives back when their process ends in any way.

    A slot that has its GPU alone excludes every other; slots that share a GPU exclude only their own number.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.gettempdir())
        self._held: dict[str, list[int]] = {}

    def take(self, slot: str) -> bool:
        """Whether the slot is now ours. True also where no lock file can be made: a lock never stops all training."""
        if slot in self._held:
            return True
        shared = fcntl.LOCK_SH if is_packed(slot) else fcntl.LOCK_EX
        wanted = [(gpu_of(slot) or slot, shared), *([(slot, fcntl.LOCK_EX)] if is_packed(slot) else [])]
        held: list[int] = []
        for name, kind in wanted:
            file = self._open(name)
            if file is None:
                continue
            held.append(file)
            if not _lock(file, kind):
                _close(held)
                return False
        self._held[slot] = held
        return True

    def keep(self, slots: Collection[str]) -> None:
        """Give every slot back but these."""
        for slot in self._held.keys() - set(slots):
            self.drop(slot)

    def drop(self, slot: str) -> None:
        """Give a slot back. Harmless when it is not ours."""
        _close(self._held.pop(slot, []))

    def _open(self, name: str) -> int | None:
        """Readers may lock, so that users of one machine can share the folder."""
        path = self.folder / f"nlq-{name.replace('/', '-')}.lock"
        for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT):
            with suppress(OSError):
                return os.open(path, flags | os.O_NOFOLLOW, 0o644)
        return None


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
