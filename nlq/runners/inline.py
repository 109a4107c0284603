"""Runs in this process, one after the other: for debugging, and for tests that need no isolation."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from nlq.core.launch import Handle, Launch, Process, Runner
from nlq.runners._process import AdoptedHandle, this_process


class InlineHandle:
    """A run that has ended by the time it is looked at."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code

    @property
    def process(self) -> Process:
        """This process."""
        return this_process()

    def poll(self) -> int:
        """The exit code."""
        return self.exit_code

    def ask_to_stop(self) -> None:
        """Nothing is left to stop."""

    def stop(self, grace_s: float) -> None:
        """Nothing is left to stop."""


class Inline:
    """Calls the worker's entry; its output goes to the log as in a process of its own."""

    def __init__(self, entry: Callable[[Sequence[str]], int]) -> None:
        self.entry = entry

    def warm(self) -> bool:
        """This process imports what it needs when it needs it."""
        return True

    def start(self, launch: Launch) -> Handle:
        """Train to the end before returning. CUDA reads the slot's environment once: all runs see the first's GPU."""
        launch.log_path.parent.mkdir(parents=True, exist_ok=True)
        with (
            launch.log_path.open("a", encoding="utf-8", buffering=1) as log,
            redirect_stdout(log),
            redirect_stderr(log),
            _environment(launch.slot.environment),
        ):
            return InlineHandle(self.entry(launch.arguments))

    def adopt(self, process: Process) -> Handle:
        """Watch another scheduler's process."""
        return AdoptedHandle(process)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def make(entry: Callable[[Sequence[str]], int]) -> Runner:
    """A runner that calls `entry` with the worker's arguments."""
    return Inline(entry)
