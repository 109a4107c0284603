"""The runner's side of a fork server: `python -m nlq.forkserver`, which has imported PyTorch before a run is there."""

import json
import os
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence

READY = b"!"
"""A server says this once, when its imports are done."""

REPLY = struct.Struct("!ci")
PID, ERROR, EXIT = b"p", b"e", b"x"
"""What a run's channel tells: the new process's number or why there is none, and later its exit code."""

GO = b"+"
"""A new process may train once its runner, which knows it now, has said this on its channel."""

ANSWER_S = 120.0
"""A server that imports or forks for longer is held, or hangs."""

TITLE_ROOM = " " * 2000
"""An argument that is as long as a worker's command line may be, which then stands in its place for `ps`."""

SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""For the server alone: libraries that start threads when they are loaded, with which it could not be forked."""


class Server:
    """A fork server in a session of its own, which Ctrl-C does not reach. It ends with this object, or this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Raises OSError when no process can be started."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nlq.forkserver", str(theirs.fileno()), TITLE_ROOM],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**environment, **SINGLE_THREADED},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.is_ready, self.is_gone = False, False
        weakref.finalize(self, _end, self._socket, process)

    def look(self) -> None:
        """Take in whether it has imported everything, and whether it has ended."""
        try:
            said = self._socket.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self.is_ready, self.is_gone = self.is_ready or said == READY, not said

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], log: int) -> tuple[int, socket.socket]:
        """A new process, which waits for a byte on the channel that comes with its number.

        Raises ConnectionError or TimeoutError when the server is gone or must be given up, with nothing started, and
        another OSError when the machine has no room for a process.
        """
        ours, theirs = socket.socketpair()
        try:
            ours.settimeout(ANSWER_S)
            with theirs:
                socket.send_fds(self._socket, [GO], [log, theirs.fileno()])
            ours.sendall(json.dumps({"arguments": [*arguments], "environment": {**environment}}).encode() + b"\n")
            return _pid(ours.recv(REPLY.size)), ours
        except BaseException:
            ours.close()
            raise


def _pid(answer: bytes) -> int:
    kind, number = REPLY.unpack(answer) if answer else (EXIT, 0)
    if kind == ERROR:
        raise OSError(number, os.strerror(number))
    if kind == EXIT:
        raise ConnectionAbortedError("the server, or its new process, ended before the run began")
    return int(number)


def _end(connection: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    """Its runs go on; nobody waits for their exit codes any more."""
    connection.close()
    process.kill()
    process.wait()
