"""The processes of a run's further devices: started by its worker, and ended with it however it ends.

They stay in the worker's process group, so that whoever ends the group ends them; and each looks whether the worker
still is its parent, since a worker that is killed alone takes nobody with it.
"""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

WATCH_S = 0.2
PATIENCE_S = 10.0
"""How long a worker may take to notice by itself that a rank is gone: gloo tells at once, NCCL never."""
NOTICE_S = 3.0

CODES = {"out_of_memory": errno.ENOMEM, "no_space": errno.ENOSPC, "device_error": errno.EIO, "code_error": 1}
"""Exit codes by which a rank tells the class of its failure."""
PEER_GONE = errno.ECONNRESET
"""The exit code of a rank that lost the others, and so is not the one to blame."""

_BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class RankLostError(Exception):
    """A run lost one of its devices or their connection; `kind` is the class of that failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Ranks:
    """Ranks 1 to `devices` − 1 of a run.

    `arguments` are the worker's own, and `told` is what else they must know, as JSON. `on_lost` is called in another
    thread where a rank is gone and the worker has not noticed after some time; it returns this process's exit code.
    """

    def __init__(
        self, devices: int, arguments: Sequence[str], told: str, on_lost: Callable[[RankLostError], int]
    ) -> None:
        self.devices, self.arguments, self.told, self.on_lost = devices, arguments, told, on_lost
        self._started: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()

    def start(self, threads: int) -> None:
        """Start them, each with so many CPU threads."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)  # inherited: only the worker is asked to stop
        try:
            for rank in range(1, self.devices):
                self._started.append(self._start(rank, str(threads)))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        threading.Thread(target=self._watch, daemon=True).start()

    def check(self) -> None:
        """Raise RankLostError where one of them has ended."""
        codes = {rank: code for rank, child in enumerate(self._started, 1) if (code := child.poll()) is not None}
        if codes:
            rank = min(codes, key=lambda rank: codes[rank] == PEER_GONE)
            raise RankLostError(_kind(codes[rank]), f"rank {rank} of {self.devices} {_ending(codes[rank])}")

    def blame(self, error: Exception) -> RankLostError:
        """What lies behind an exchange that failed: a rank that has ended, or the connection."""
        deadline = time.monotonic() + NOTICE_S
        while time.monotonic() < deadline:
            try:
                self.check()
            except RankLostError as found:
                return found
            time.sleep(WATCH_S / 10)
        return RankLostError("device_error", str(error))

    def end(self) -> None:
        """End them, and return when they are gone."""
        self._over.set()
        for child in self._started:
            child.kill()
        for child in self._started:
            child.wait()

    def _start(self, rank: int, threads: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", "nlq.worker", *self.arguments, "--rank", str(rank)]
        child = subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=sys.stdout,
            stderr=sys.stderr,
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
        )
        assert child.stdin is not None
        with suppress(OSError), child.stdin as told:  # it may have ended already, which is noticed later
            told.write(self.told.encode())
        return child

    def _watch(self) -> None:
        while not self._over.wait(WATCH_S):
            try:
                self.check()
            except RankLostError as found:
                if not self._over.wait(PATIENCE_S):
                    self._give_up(found)

    def _give_up(self, found: RankLostError) -> None:
        code = PEER_GONE
        try:
            code = self.on_lost(found)
        finally:
            os._exit(code)


def end_with(parent: int) -> None:
    """Let this process end as soon as its parent has ended, whatever it is doing then."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(PEER_GONE)

    threading.Thread(target=watch, daemon=True).start()


def wait_for_the_end() -> None:
    """Do nothing until this process is ended."""
    while True:
        signal.pause()


def _kind(code: int) -> str:
    return next((kind for kind, known in CODES.items() if known == code), "killed")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
