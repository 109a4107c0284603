"""`python -m nlq.forkserver FD`: has imported what a run needs, and becomes one process a run by forking.

Its runner (nlq/runners/_forking.py) is at the other end of the socket FD, and says which runs. A forked process is told
to go on only when its runner knows it, so that a server or a runner that dies in between leaves nothing that trains.
"""

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import psutil

from nlq.provenance import source_on_disk_sha256, source_sha256
from nlq.runners._forking import ERROR, EXIT, PID, READY, REPLY

FORKS_SAFELY = sys.platform != "darwin"
"""Apple's frameworks, which PyTorch loads, must not be used between fork and exec."""


@dataclass
class Order:
    """A run to start: the worker's arguments, its whole environment, its log, and the channel to its handle."""

    arguments: list[str]
    environment: dict[str, str]
    log: int
    channel: socket.socket


class Server:
    """Forks what its runner orders, and tells how it ended. Has no thread, and touches no device."""

    def __init__(self, runner: socket.socket) -> None:
        self.runner = runner
        self.runs: dict[int, socket.socket] = {}
        self.woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._before = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        """Leave nothing of it open; in a forked process, nothing of the server is left."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._before)
        for one in (self.runner, self.woken, self._wake, *self.runs.values()):
            one.close()

    def serve(self) -> Order | None:
        """Return in every forked process with its order, and in the server with None when its runner is gone."""
        with suppress(OSError):
            self.runner.sendall(READY)
        while (received := self._next()) is not None:
            order = self._read(*received) if len(received) == 2 else None
            if order is not None and self._is_forked(order):
                return order
        return None

    def _next(self) -> list[int] | None:
        """The descriptors of the next order: a log and a channel; meanwhile the ends of runs are told."""
        waiting = select.poll()
        for one in (self.runner, self.woken):
            waiting.register(one, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in waiting.poll()]
            if self.woken.fileno() in ready:
                self.woken.recv(4096)
                self._tell_ends()
            if self.runner.fileno() in ready:
                return _received(self.runner)

    def _tell_ends(self) -> None:
        while self.runs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in self.runs:
                with self.runs.pop(pid) as channel, suppress(OSError):
                    channel.sendall(REPLY.pack(EXIT, os.waitstatus_to_exitcode(status)))

    def _read(self, log: int, channel: int) -> Order | None:
        """The order of a log and a channel. None, and both closed, when it must not be followed.

        A server of older source hangs up, and the runner starts another.
        """
        end = socket.socket(fileno=channel)
        with end.makefile("rb") as lines, suppress(OSError, ValueError):
            said = json.loads(lines.readline())
            if source_on_disk_sha256() == source_sha256():
                return Order(said["arguments"], said["environment"], log, end)
        os.close(log)
        end.close()
        return None

    def _is_forked(self, order: Order) -> bool:
        """Whether this is the new process."""
        try:
            pid = os.fork()
        except OSError as error:
            with order.channel, suppress(OSError):
                order.channel.sendall(REPLY.pack(ERROR, error.errno or 0))
            pid = -1
        if pid == 0:
            return True
        if pid > 0:
            self.runs[pid] = order.channel
        os.close(order.log)
        return False


def _received(runner: socket.socket) -> list[int] | None:
    """The descriptors that came with one byte, or None at the end."""
    try:
        said, descriptors, _, _ = socket.recv_fds(runner, 1, 2)
    except OSError:
        return None
    return descriptors if said else None


def become(order: Order, is_warm: bool) -> NoReturn:
    """Go on as the worker of one run, with everything of `python -m nlq.worker` but its imports."""
    os.setsid()
    for number in (1, 2):
        os.dup2(order.log, number)
    os.close(order.log)
    if not _may_go_on(order.channel):
        os._exit(1)
    command = [sys.executable, "-P", "-m", "nlq.worker", *order.arguments]
    if not is_warm:
        os.execve(sys.executable, command, order.environment)
    os.environ.clear()
    os.environ.update(order.environment)
    show_as(command)
    if "numpy.random" in sys.modules:  # Python's own generator sees to it by itself, PyTorch's begins with a constant
        sys.modules["numpy.random"].seed()
    gc.enable()
    _work(order.arguments)


def _may_go_on(channel: socket.socket) -> bool:
    """Whether the runner knows this process now; it may be gone."""
    with channel, suppress(OSError):
        channel.sendall(REPLY.pack(PID, os.getpid()))
        return bool(channel.recv(1))
    return False


def _work(arguments: list[str]) -> NoReturn:
    """Without the interpreter's own end, which takes a quarter of a second: `worker.main` has closed everything."""
    from nlq import worker

    sys.argv = [worker.__file__, *arguments]
    code = exit_code(lambda: worker.main(arguments))
    worker.end_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def exit_code(call: Callable[[], int]) -> int:
    """What a program that calls this and ends tells its parent; a signal's number is negative."""
    code: object = 1
    try:
        code = call()
    except SystemExit as end:
        code = end.code
    except BaseException as error:  # noqa: BLE001 - the interpreter does the same
        traceback.print_exc()
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def show_as(command: Sequence[str]) -> None:
    """What `ps` shows. Linux reads a command line from the memory of argv: when its last byte is no zero, up to one."""
    with suppress(OSError, IndexError):
        start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
        room = end - start - 2
        if room > 0:
            text = os.fsencode(" ".join(command))[:room]
            ctypes.memmove(start, text + b"\0" * (room + 1 - len(text)) + b"\xff", end - start)


def _is_warm() -> bool:
    """Import what a run needs; whether a process with all that may be forked.

    Otherwise runs start cold, and a fault of the imports stands in their logs.
    """
    try:
        importlib.import_module("nlq.worker").import_all()
    except Exception as error:  # noqa: BLE001 - source that is being edited fails in any way
        print(f"every run imports by itself: {type(error).__name__}: {error}", file=sys.stderr)
        return False
    torch, threads = sys.modules.get("torch"), psutil.Process().num_threads()
    if threads > 1 or (torch and torch.cuda.is_initialized()):
        print(f"every run imports by itself: {threads} threads run after the imports, or CUDA does", file=sys.stderr)
        return False
    return True


def main(arguments: Sequence[str]) -> None:
    """Import, then serve until the runner at the other end of the socket is gone."""
    show_as([sys.executable, "-P", "-m", "nlq.forkserver"])
    runner = socket.socket(fileno=int(arguments[0]))
    source_sha256()  # before the imports: of a file that changes meanwhile, the older content is told
    gc.disable()
    is_warm = FORKS_SAFELY and _is_warm()
    gc.freeze()
    with closing(Server(runner)) as server:
        order = server.serve()
    if order is not None:
        become(order, is_warm)


if __name__ == "__main__":
    main(sys.argv[1:])
