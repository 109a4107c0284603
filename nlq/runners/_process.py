"""Telling processes apart, across reboots and reused numbers."""

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from nlq.core.launch import Process

POLL_S = 0.02
UNKNOWN_CODE = 255
"""Stands for the exit code of a process that somebody else started: only its parent is told."""


class AdoptedHandle:
    """A worker that leads its own process group, whoever started it. Signals reach exactly that process or nobody."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._asked = False

    def poll(self) -> int | None:
        """UNKNOWN_CODE once it has ended; what it left running in its group is then killed."""
        if is_alive(self.process):
            return None
        self.kill()
        return UNKNOWN_CODE

    def ask_to_stop(self) -> None:
        """SIGTERM, once, to the worker alone: it writes a checkpoint first."""
        if not self._asked and is_alive(self.process):
            self._asked = True
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.process.pid, signal.SIGTERM)

    def stop(self, grace_s: float, poll: Callable[[], int | None] | None = None) -> None:
        """SIGTERM to the group, and SIGKILL to what is left of it after `grace_s` seconds, then wait for its end.

        `poll` is the parent's way of seeing that the process has ended.
        """
        ended = poll or (lambda: None if is_alive(self.process) else UNKNOWN_CODE)
        if ended() is None:
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)
        deadline = time.monotonic() + grace_s
        while ended() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self.kill()
        while ended() is None:
            time.sleep(POLL_S)

    def kill(self) -> None:
        """SIGKILL to the group, also when its leader has ended before: a group's number is not given away meanwhile."""
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        taken_by_another = _started(self.process.pid) not in ("", self.process.started)
        if not taken_by_another and os.getpgid(0) != self.process.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)


def this_process() -> Process:
    """The process that calls."""
    return identify(os.getpid())


def identify(pid: int) -> Process:
    """The identity of a living process; `started` is empty when it has gone already."""
    return Process(socket.gethostname(), boot_id(), pid, _started(pid))


def is_alive(process: Process) -> bool:
    """Whether exactly this process still runs on this machine. A zombie does not."""
    return process.host == socket.gethostname() and process.boot_id == boot_id() and is_running(process)


def is_running(process: Process) -> bool:
    """The same of a process that is known to be of this machine's current boot, whatever the machine is called now."""
    try:
        return bool(process.started) and _started(process.pid) == process.started and _status(process.pid) != "Z"
    except (psutil.Error, OSError):
        return False


@cache
def boot_id() -> str:
    """An identity of the machine's current boot."""
    kernel_id = Path("/proc/sys/kernel/random/boot_id")
    return kernel_id.read_text().strip() if kernel_id.exists() else str(psutil.boot_time())


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on: the name before them may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def _started(pid: int) -> str:
    """Ticks since boot where the kernel gives them: unlike a time of day, they do not move with the clock."""
    try:
        return _stat(pid)[19] if Path("/proc/self/stat").exists() else str(psutil.Process(pid).create_time())
    except (psutil.Error, OSError, IndexError):
        return ""


def _status(pid: int) -> str:
    if Path("/proc/self/stat").exists():
        return _stat(pid)[0]
    return "Z" if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else "R"
