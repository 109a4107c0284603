"""One process a run, in a process group of its own, on this machine."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from nlq.core.launch import Handle, Launch, Process, Runner
from nlq.runners._process import AdoptedHandle, identify


class LocalHandle:
    """A child process and everything that it starts."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        self.child = child
        self._group = AdoptedHandle(identify(child.pid))

    @property
    def process(self) -> Process:
        """The child's identity."""
        return self._group.process

    def poll(self) -> int | None:
        """Its exit code, once it has ended; what it left running in its group is then killed."""
        code = self.child.poll()
        if code is not None:
            self._group.kill()
        return code

    def ask_to_stop(self) -> None:
        """SIGTERM to the worker alone: it writes a checkpoint first."""
        self._group.ask_to_stop()

    def stop(self, grace_s: float) -> None:
        """SIGTERM to the group, and SIGKILL to what is left of it after `grace_s` seconds."""
        self._group.stop(grace_s, self.child.poll)
        self.child.wait()


class Local:
    """Starts `python -m nlq.worker` for each run."""

    def start(self, launch: Launch) -> Handle:
        """The child sees its slot's device alone, and its output goes to the log at once."""
        threads = str(launch.slot.threads)
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PYTHONUTF8": "1",
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            **launch.slot.environment,
        }
        launch.log_path.parent.mkdir(parents=True, exist_ok=True)
        with launch.log_path.open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "nlq.worker", *launch.arguments],  # -P: never code from the working folder
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        return LocalHandle(child)

    def adopt(self, process: Process) -> Handle:
        """Watch a worker that another scheduler started."""
        return AdoptedHandle(process)


def make(_entry: Callable[[Sequence[str]], int]) -> Runner:
    """Processes import the worker themselves."""
    return Local()
