"""Telling processes apart, across reboots and reused numbers."""

import os
import socket
from functools import cache
from pathlib import Path

import psutil

from nlq.core.launch import Process


def this_process() -> Process:
    """The process that calls."""
    return identify(os.getpid())


def identify(pid: int) -> Process:
    """The identity of a living process; `started` is empty when it has gone already."""
    return Process(socket.gethostname(), boot_id(), pid, _started(pid))


def is_alive(process: Process) -> bool:
    """Whether exactly this process still runs on this machine. A zombie does not."""
    if process.host != socket.gethostname() or process.boot_id != boot_id():
        return False
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
