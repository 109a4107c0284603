"""One process a run, in a process group of its own, on this machine: forked by a server that has imported PyTorch."""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from nlq.core.launch import Handle, Launch, Process, Runner
from nlq.runners._forking import GO, REPLY, Server
from nlq.runners._process import UNKNOWN_CODE, AdoptedHandle, identify, is_running

LOOK_S, MISSES = 1.0, 3
"""How often a run's process itself is looked at, and when its server, which should have told its end, is held."""

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Large blocks of memory lie in huge pages, which take fewer faults to fill."""


class LocalHandle:
    """A run's process and everything that it starts. Its server tells its exit code, as long as there is one."""

    def __init__(self, process: Process, channel: socket.socket, server: Server) -> None:
        channel.setblocking(False)
        self._group, self._channel = AdoptedHandle(process), channel
        self._server = server  # ends when nobody holds it
        self._code: int | None = None
        self._look_at, self._missed = time.monotonic() + LOOK_S, 0

    @property
    def process(self) -> Process:
        """The process's identity."""
        return self._group.process

    def poll(self) -> int | None:
        """Its exit code, once it has ended; what it left running in its group is then killed."""
        if self._code is None:
            self._code = self._told()
            if self._code is not None:
                self._group.kill()
                self._channel.close()
        return self._code

    def _told(self) -> int | None:
        try:
            answer = self._channel.recv(REPLY.size)
        except BlockingIOError:
            return self._untold()
        except OSError:
            answer = b""
        return REPLY.unpack(answer)[1] if answer else self._group.poll()

    def _untold(self) -> int | None:
        """None while it runs: a server that is held tells nothing, also of what has ended."""
        now = time.monotonic()
        if now < self._look_at:
            return None
        self._look_at = now + LOOK_S
        self._missed = 0 if is_running(self.process) else self._missed + 1
        return UNKNOWN_CODE if self._missed >= MISSES else None

    def ask_to_stop(self) -> None:
        """SIGTERM to the worker alone: it writes a checkpoint first."""
        self._group.ask_to_stop()

    def stop(self, grace_s: float) -> None:
        """SIGTERM to the group, and SIGKILL to what is left of it after `grace_s` seconds."""
        self._group.stop(grace_s, self.poll)


class Local:
    """Lets a fork server start each run, and starts another server when it is gone."""

    def __init__(self) -> None:
        self._server: Server | None = None

    def warm(self) -> bool:
        """Start a server, and another in place of one that was killed, and let it import in the background."""
        server = self._server
        if server is not None:
            server.look()
        if server is None or (server.is_ready and server.is_gone):
            with suppress(OSError):
                self._server = Server(_environment())
                return False
            return True
        return server.is_ready or server.is_gone

    def start(self, launch: Launch) -> Handle:
        """The child sees its slot's device alone, and its output goes to the log at once."""
        threads = str(launch.slot.threads)
        own = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **launch.slot.environment}
        launch.log_path.parent.mkdir(parents=True, exist_ok=True)
        with launch.log_path.open("ab") as log:
            for _ in range(2):  # a server that was killed, or runs older source, is replaced
                with suppress(ConnectionError, TimeoutError):
                    return self._start(launch.arguments, {**_environment(), **own}, log.fileno())
        raise OSError("the fork server ended, and so did another one; what they printed says why")

    def _start(self, arguments: Sequence[str], environment: Mapping[str, str], log: int) -> Handle:
        server = self._server = self._server or Server(_environment())
        try:
            pid, channel = server.fork(arguments, environment, log)
            handle = LocalHandle(identify(pid), channel, server)
            channel.send(GO)
        except (ConnectionError, TimeoutError):
            self._server = None
            raise
        return handle

    def adopt(self, process: Process) -> Handle:
        """Watch a worker that another scheduler started."""
        return AdoptedHandle(process)


def _environment() -> dict[str, str]:
    """What the server and its runs share: output at once, and memory in huge pages unless the user has set that."""
    environment = {**HUGE_PAGES, **os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
    tunable, found = HUGE_PAGES["GLIBC_TUNABLES"], environment["GLIBC_TUNABLES"]
    if tunable.partition("=")[0] not in found:
        environment["GLIBC_TUNABLES"] = f"{found}:{tunable}".lstrip(":")
    return environment


def make(_entry: Callable[[Sequence[str]], int]) -> Runner:
    """Processes import the worker themselves."""
    return Local()
