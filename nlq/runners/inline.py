"""Runs in this process, one after the other: for debugging, and for tests that need no isolation."""

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout

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

    def start(self, launch: Launch) -> Handle:
        """Train to the end before returning."""
        launch.log_path.parent.mkdir(parents=True, exist_ok=True)
        with (
            launch.log_path.open("a", encoding="utf-8", buffering=1) as log,
            redirect_stdout(log),
            redirect_stderr(log),
        ):
            return InlineHandle(self.entry(launch.arguments))

    def adopt(self, process: Process) -> Handle:
        """Watch another scheduler's process."""
        return AdoptedHandle(process)


def make(entry: Callable[[Sequence[str]], int]) -> Runner:
    """A runner that calls `entry` with the worker's arguments."""
    return Inline(entry)
